FROM golang:1.26 AS build
ARG VERSION=dev
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /fleet-manager ./cmd/fleet-manager

FROM gcr.io/distroless/static:nonroot
COPY --from=build /fleet-manager /fleet-manager
USER 65532:65532
ENTRYPOINT ["/fleet-manager"]

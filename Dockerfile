FROM golang:1.26 AS build
WORKDIR /src
# In a layer of their own: modules change less often than the sources.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# After the modules, which are the same in each version.
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /fleet-manager ./cmd/fleet-manager

FROM gcr.io/distroless/static:nonroot
COPY --from=build /fleet-manager /fleet-manager
USER 65532:65532
ENTRYPOINT ["/fleet-manager"]

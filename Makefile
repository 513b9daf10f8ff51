# agentrun-fleet. `make help` lists what there is.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

KUBE_VERSION := v1.36.3
BIN := $(CURDIR)/bin
TOOL := test/tools/build.sh
KUBEBUILDER_ASSETS ?= $(BIN)/k8s
export KUBEBUILDER_ASSETS

# What fleet-manager and the plugin say of themselves.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO_LDFLAGS := -X main.version=$(VERSION)

CONTAINER_TOOL ?= docker
IMG ?= ghcr.io/konveyor/agentrun-fleet:$(VERSION)

# What /version answers; k8s.io/kubernetes built as a dependency knows no git tag.
KUBE_LDFLAGS := $(foreach pkg,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
	-X $(pkg).gitVersion=$(KUBE_VERSION) -X $(pkg).gitMajor=1 -X $(pkg).gitMinor=36 -X $(pkg).gitTreeState=archive)

# Tests mostly wait, and an API server takes 310 MB: so many on two cores, and no more on
# a machine with many.
GO_TEST_PARALLEL := -p 3 -parallel 4

##@ Main

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: programs ## Run every test on real API servers (the first run builds them)
	go test -timeout 30m $(GO_TEST_PARALLEL) ./test/fleet ./test/ledger ./... # the longest first

.PHONY: build
build: ## Build the manager into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(GO_LDFLAGS)' -o $(BIN)/fleet-manager ./cmd/fleet-manager

.PHONY: plugin
plugin: ## Build the kubectl plugin into bin/ (kubectl agentrunfleet, with bin/ in PATH)
	CGO_ENABLED=0 go build -trimpath -ldflags '$(GO_LDFLAGS)' -o $(BIN)/kubectl-agentrunfleet ./cmd/kubectl-agentrunfleet

.PHONY: image
image: ## Build the manager's image: IMG=registry.example/agentrun-fleet:dev, CONTAINER_TOOL=podman
	$(CONTAINER_TOOL) build --build-arg VERSION=$(VERSION) -t $(IMG) .

.PHONY: demo
demo: programs ## Show it at work: a hub, three members, 36 runs. ONESHOT=1 checks every number and ends
	@echo ">> building fleet-manager and the demo (minutes the first time, seconds later)"
	@go build ./cmd/fleet-manager ./test/demo
	@go build -o $(BIN)/demo ./test/demo
	@$(BIN)/demo $(if $(filter-out 0,$(ONESHOT)),--oneshot)

.PHONY: clean
clean: ## Remove bin/ and dist/, the built Kubernetes programs included (minutes to build again)
	rm -rf $(BIN) $(CURDIR)/dist

##@ Tools (built from Go modules into bin/)

KUBE_PROGRAMS := kube-apiserver kube-scheduler kube-controller-manager kubectl

.PHONY: kube-binaries
kube-binaries: ## Build the Kubernetes programs and etcd that the tests start
ifeq ($(KUBEBUILDER_ASSETS),$(BIN)/k8s)
	@$(TOOL) $(BIN)/k8s/etcd etcd go.etcd.io/etcd/server/v3
	@for p in $(KUBE_PROGRAMS); do $(TOOL) $(BIN)/k8s/$$p kubernetes k8s.io/kubernetes/cmd/$$p -ldflags '$(KUBE_LDFLAGS)'; done
else
	@echo ">> using the Kubernetes programs in KUBEBUILDER_ASSETS=$(KUBEBUILDER_ASSETS)"
endif

# One list for whatever starts programs, so that none forgets one on a fresh machine.
.PHONY: programs
programs: kube-binaries agent-sandbox kwok kustomize ## Build every program that tests and demo start

.PHONY: kwok agent-sandbox controller-gen kustomize golangci-lint
kwok:
	@$(TOOL) $(BIN)/kwok kwok sigs.k8s.io/kwok/cmd/kwok
agent-sandbox:
	@$(TOOL) $(BIN)/agent-sandbox-controller agent-sandbox sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller
controller-gen:
	@$(TOOL) $(BIN)/controller-gen controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen
kustomize:
	@$(TOOL) $(BIN)/kustomize kustomize sigs.k8s.io/kustomize/kustomize/v5
golangci-lint:
	@$(TOOL) $(BIN)/golangci-lint golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

##@ Development

.PHONY: generate
generate: controller-gen ## Regenerate deepcopy code, CRDs and RBAC from the markers
	@$(BIN)/controller-gen object:headerFile=test/boilerplate.go.txt paths=./api/...
	@$(BIN)/controller-gen crd paths=./api/agent/... output:crd:artifacts:config=config/crd/member
	@$(BIN)/controller-gen crd paths=./api/fleet/... output:crd:artifacts:config=config/crd/hub
	@$(BIN)/controller-gen rbac:roleName=agentrun-fleet-member paths=./fleet/agentrun/... output:rbac:artifacts:config=config/rbac/member
	@$(BIN)/controller-gen rbac:roleName=agentrun-fleet-hub paths=./cmd/fleet-manager/... paths=./fleet/rollup/... paths=./providers/... output:rbac:artifacts:config=config/rbac/hub

.PHONY: manifests
manifests: generate kustomize ## Write dist/hub.yaml and dist/member.yaml, for kubectl apply -f
	@mkdir -p dist
	@$(BIN)/kustomize build config/default >dist/hub.yaml
	@$(BIN)/kustomize build config/member >dist/member.yaml

.PHONY: verify
verify: generate ## Fail when a generated file is not current
	@git diff --exit-code -- api config || { echo "generated files are not current: run make generate and commit"; exit 1; }
	@test -z "$$(git ls-files --others --exclude-standard -- api config)" || { echo "generated files are not committed:"; git ls-files --others --exclude-standard -- api config; exit 1; }
	@go mod tidy -diff

.PHONY: lint
lint: golangci-lint ## Run golangci-lint
	$(BIN)/golangci-lint run ./...

.PHONY: race
race: programs ## Run what is concurrent with the race detector, but for the longest (needs a C compiler)
	go test -race -short -timeout 30m $(GO_TEST_PARALLEL) ./api/... ./cmd/fleet-manager/... ./fleet/... ./providers/... ./test/ledger/...

.PHONY: chaos
chaos: programs ## Disturb four members for CHAOS_DURATION (100s), with the race detector. CHAOS_SEED=7 repeats a plan
	CHAOS_DURATION=$(or $(CHAOS_DURATION),100s) go test -race -v -count=1 -timeout 60m ./test/chaos

.PHONY: fuzz
fuzz: ## Look for kubeconfigs that get past the checks, for FUZZ_TIME (20s)
	go test -run '^$$' -fuzz FuzzParseKubeconfig -fuzztime $(or $(FUZZ_TIME),20s) ./providers/kubeconfigsecret

.PHONY: cover
cover: ## Hold the pure packages to 95% statement coverage
	@for p in startup tally text ttl; do \
		go test -coverprofile=$(BIN)/$$p.cover ./fleet/$$p >/dev/null; \
		go tool cover -func=$(BIN)/$$p.cover | awk -v p=$$p '/^total:/ {sub("%", "", $$3); print "fleet/" p ": " $$3 "% of statements"; exit ($$3 + 0 < 95)}'; \
	done

.PHONY: bench
bench: programs ## Measure latency and memory against a floor in the same run
	go test -run '^$$' -bench . -benchtime 1x -timeout 20m -v ./test/bench

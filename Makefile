# agentrun-fleet. `make help` lists what there is.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

KUBE_VERSION := v1.36.3
BIN := $(CURDIR)/bin
TOOL := test/tools/build.sh
KUBEBUILDER_ASSETS ?= $(BIN)/k8s
export KUBEBUILDER_ASSETS

# What /version answers; k8s.io/kubernetes built as a dependency knows no git tag.
KUBE_LDFLAGS := $(foreach pkg,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
	-X $(pkg).gitVersion=$(KUBE_VERSION) -X $(pkg).gitMajor=1 -X $(pkg).gitMinor=36 -X $(pkg).gitTreeState=archive)

##@ Main

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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
	@$(BIN)/controller-gen rbac:roleName=agentrun-fleet-hub paths=./fleet/rollup/... paths=./providers/... output:rbac:artifacts:config=config/rbac/hub

.PHONY: manifests
manifests: generate kustomize ## Write dist/hub.yaml and dist/member.yaml, for kubectl apply -f
	@mkdir -p dist
	@$(BIN)/kustomize build config/default >dist/hub.yaml
	@$(BIN)/kustomize build config/member >dist/member.yaml

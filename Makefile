# What people call. The work is done by tests/local, tests/images and tests/cluster (standard library only).
SHELL := /bin/sh
LOCAL := PYTHONPATH=tests PYTHONDONTWRITEBYTECODE=1 python3 -m
TOOL ?= docker
REGISTRY ?=
TAG ?=
DEVICE ?= cpu
PUSH ?=
BASE ?=
TORCH_INDEX_URL ?=

.DEFAULT_GOAL := help
.PHONY: help setup up down status images test unit lint e2e soak lock clean-cache

help: ## what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing and link the Python environment as .venv
	@$(LOCAL) local setup

up: ## a real one-node Kubernetes on this machine with an answering model (root, Debian); repeat after changes
	@$(LOCAL) local up

down: ## stop it and leave nothing
	@$(LOCAL) local down

status: ## what runs
	@$(LOCAL) local status

images: ## for your cluster: TOOL=docker|podman|buildah REGISTRY=... TAG=... [PUSH=1] [DEVICE=cpu|cuda] [BASE=...]
	@$(LOCAL) images publish --tool '$(TOOL)' --registry '$(REGISTRY)' --tag '$(TAG)' --device '$(DEVICE)' \
	  --base '$(BASE)' --torch-index-url '$(TORCH_INDEX_URL)' $(if $(filter 1 yes true,$(PUSH)),--push)

test: ## all checks: style, types, unit tests, scenarios on the cluster (started and stopped if it is not up)
	@$(LOCAL) local test

unit: ## unit tests only
	@$(LOCAL) local unit

lint: ## style, format, types, import rules
	@$(LOCAL) local lint

e2e: ## scenarios on the cluster only: [AREA=flags] [KEEP=1 leaves it up, so that the next run starts at once]
	@$(LOCAL) local e2e

soak: ## a sidecar under 1,200 connections for 10 minutes, some of them hostile: [MINUTES=10]
	@$(LOCAL) local soak

lock: ## resolve requirements/*.lock anew; delete a lock before to get newer versions
	@$(LOCAL) local lock

clean-cache: ## remove what is dear to make (run `make down` before)
	@$(LOCAL) local clean-cache

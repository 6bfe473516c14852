# SPDX-License-Identifier: Apache-2.0
# cluster: a Kubernetes of our own to try things on, and for tests. See README.md.

KWOK ?= 10
REAL ?= $(if $(filter 0,$(shell id -u)),1)

cluster: deps  ## a Kubernetes cluster that stays: KWOK=n simulated nodes (10), REAL=1 a real one (root)
	$(Q)$(PY) tests/cluster/cluster.py up --kwok $(KWOK) $(if $(filter 1,$(REAL)),--real)

cluster-down:  ## ends the cluster of make cluster and leaves nothing
	$(Q)$(PY) tests/cluster/cluster.py down

cluster-demo: images  ## k8s/examples/mnist.yaml on a real node: scaled 2, 4, 3, one worker killed, to its end (root)
	$(Q)$(PY) tests/cluster/demo.py $(BUILD)

HVD_DAY_MINUTES ?= 40

cluster-day: deps all  ## a day of a cluster of 500 simulated nodes, its tenants and troubles: HVD_SEED=n, HVD_DAY_MINUTES=40, KWOK=500
	$(Q)$(PY) tests/cluster/day.py --minutes $(HVD_DAY_MINUTES) --nodes $(if $(filter file,$(origin KWOK)),500,$(KWOK)) $(if $(HVD_SEED),--seed $(HVD_SEED))

.PHONY: cluster cluster-down cluster-demo cluster-day

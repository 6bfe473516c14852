# SPDX-License-Identifier: Apache-2.0
# bench: programs that measure. bench_mpi, bench_mpi_sets, bench_mpi_messages and bench_both are there only where mpicc and mpi.h are.

BENCH_BINS := $(filter-out $(if $(HAS_MPI),,%/bench_mpi %/bench_mpi_sets %/bench_mpi_messages %/bench_both),$(BENCH_BINS))

$(addprefix $(BUILD)/tests/bench/,bench_mpi bench_mpi_sets bench_mpi_messages): $(BUILD)/%: %.c $(BUILD)/mpi.seen
	@mkdir -p $(@D)
	$(call say,MPICC,$@)
	$(Q)OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC) $(CPPFLAGS) -O2 -g -std=gnu11 -Wall -Wextra -o $@ $<

$(BUILD)/tests/bench/bench_both: tests/bench/bench_both.c $(LIBHVD) $(LIBHVD).0 $(BUILD)/mpi.seen
	@mkdir -p $(@D)
	$(call say,MPICC,$@)
	$(Q)OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC) $(CPPFLAGS) -O2 -g -std=gnu11 -Wall -Wextra -o $@ $< -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/../..'

$(BUILD)/tests/bench/bench_match: $(BUILD)/tests/bench/bench_match.o $(HARNESS_A) $(DIAG_A) $(MEMBER_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(LDFLAGS) $(AGENT_LIBS)

$(BUILD)/tests/bench/bench_pods: $(BUILD)/tests/bench/bench_pods.o $(OPERATOR_A) $(MEMBER_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(LDFLAGS) $(OPERATOR_LIBS)

$(BUILD)/tests/bench/bench_queue $(BUILD)/tests/bench/bench_usage: %: %.o $(OPERATOR_A) $(MEMBER_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(LDFLAGS) $(OPERATOR_LIBS)

bench-programs: $(BENCH_BINS)

bench: all bench-match bench-doctor bench-collectives bench-mpi bench-gradients bench-network bench-life bench-lifeline bench-elastic  ## ours beside the peers, in alternating rounds (an hour); figures under build/bench

bench-collectives: all  ## allreduce on one host, 4 B to 64 MB, beside Open MPI and gloo
	$(Q)$(PY) tests/bench/collectives.py $(BUILD)

bench-compare: all  ## OLD=FOLDER, where another revision was built: collectives, gradients and elastic jobs of both in turn
	$(Q)$(PY) tests/bench/compare.py $(or $(OLD),$(error bench-compare wants OLD=FOLDER)) .

bench-mpi: all  ## HVD_BACKEND=mpi beside bare MPI_Allreduce, 4 B to 64 MB
	$(Q)$(PY) tests/bench/mpi.py $(BUILD)

bench-sets: all  ## sets of ranks beside worlds of their size, communicators of MPI and groups of gloo; all-to-alls, too
	$(Q)$(PY) tests/bench/sets.py $(BUILD)

bench-messages: all  ## messages between two ranks of one host, beside Open MPI's
	$(Q)$(PY) tests/bench/messages.py $(BUILD)

bench-gradients: all  ## 161 gradients of ResNet-50 through hvd.torch
	$(Q)$(PY) tests/bench/gradients.py $(BUILD)

bench-network: all  ## between network namespaces, unshaped and at 1 Gbit/s (root)
	$(Q)$(PY) tests/bench/network.py $(BUILD)

# The schedules are computed (tests/fake/README.md), so this needs no GPU. make bench-gpu is for a machine that has one.
GPU_MODEL := $(addprefix $(BUILD)/tests/,bench/bench_gpu bench/bench_gpu_bare fake/cuda.so fake/nccl-2.27/libnccl.so.2)
bench-gpu-model: $(GPU_MODEL)  ## dead time and overlap of hvd beside bare NCCL, on fake GPUs that take time
	$(Q)$(PY) tests/bench/gpu.py $(BUILD)

bench-gpu-messages: $(BUILD)/tests/bench/bench_gpu_messages $(GPU_MODEL)  ## messages between fake GPUs that take time, by NCCL and through the host
	$(Q)$<

bench-life: all  ## init and shutdown, idle processor time, memory
	$(Q)$(BUILD)/tests/bench/bench_life 4
	$(Q)$(BUILD)/tests/bench/bench_life 2 67108864

bench-lifeline: $(BUILD)/tests/bench/bench_lifeline  ## SIGKILL of 1 GiB until it is told, beside pidfd and socket (minutes)
	$(Q)$< 200 1024 0
	$(Q)$< 200 1024 4

bench-match: $(BUILD)/tests/bench/bench_match  ## the log matcher over 1 GiB in which nothing is wrong
	$(Q)$<

bench-elastic: all  ## elastic jobs: SIGKILL to the next result, planned changes, what it costs (long)
	$(Q)$(PY) tests/bench/elastic.py $(BUILD)

# The second command is a test, with many more agents than in make test.
bench-operator: all $(addprefix $(BUILD)/tests/,bench/bench_pods bench/bench_queue bench/bench_usage programs/plane_try programs/agents_try programs/steps)  ## jobs to running pods on a real API server and simulated nodes, beside bare pods; 2,000 agents at once; a failover with 10,000 (minutes)
	$(Q)$(BUILD)/tests/bench/bench_queue
	$(Q)$(BUILD)/tests/bench/bench_usage
	$(Q)$(PY) tests/bench/operator.py $(BUILD)
	$(Q)HVD_TEST_CROWD=2000 BUILD=$(BUILD) $(PY) tests/cluster/test_operator_agents.py Crowd CrowdWithTokens
	$(Q)BUILD=$(BUILD) $(PY) tests/bench/operator_scale.py $(BUILD)

bench-doctor: all  ## a level-1 look of hvd-doctor: seconds and memory
	$(Q)$(PY) tests/bench/doctor.py $(BUILD)

.PHONY: bench bench-gpu-model bench-compare bench-mpi bench-sets bench-messages bench-lifeline bench-elastic bench-operator bench-match bench-doctor bench-collectives bench-gradients bench-network bench-life

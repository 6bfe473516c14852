# SPDX-License-Identifier: Apache-2.0
# Tests. `make check` before each commit, `make test` to see whether hvd works here, HVD_TEST_STRICT=1 make test in CI; the other
# targets are parts of these.
#
# HVD_TEST_STRICT=1    everything: also sanitizers, clang, lint, fuzzers, the model, other distributions, clean machines, and
#                      all rounds of the tests that have many (otherwise a third); and a skip that tests/SKIPS does not
#                      name is a failure
# HVD_TEST_TIMEOUT=s   time limit of a test without a line "timeout:" (300)
# HVD_FUZZ_SECONDS=n   time of each fuzzer, from the seeds of tests/fuzz/corpus. Without it 30 for the parsers that a
#                      stranger's bytes reach first (the handshake, the frames), 4 for the smallest, 8 for the others
# UPDATE=1             rewrites tests/fixtures/machines/*/expected.json (test_replay)

HVD_FUZZ_SECONDS ?=
export HVD_UPDATE ?= $(UPDATE)
JOBS             ?= $(shell nproc 2>/dev/null || echo 2)
RUN              := PY=$(PY) $(PY) tests/run.py
SUB              := $(MAKE) --no-print-directory

E2E_TESTS    := $(sort $(wildcard tests/e2e/test_*.sh tests/e2e/test_*.py tests/fault/test_*.sh tests/chaos/test_*.sh))
CLUSTER_TESTS := $(sort $(wildcard tests/cluster/test_*.py))
PYTHON_TESTS := $(sort $(wildcard tests/python/test_*.py tests/chaos/test_*.py tests/litmus/test_*.py))
# Only in a strict run: other distributions, and a clean machine (not in a run that is itself on one). Other
# tests on a clean machine take too long: make test-clean.
STRICT_E2E   := tests/e2e/test_debian13.sh tests/e2e/test_bundle.sh $(if $(HVD_CLEAN_INSIDE),,tests/e2e/test_clean.sh)
E2E_TESTS    := $(filter-out tests/e2e/test_clean% $(STRICT_E2E),$(E2E_TESTS))

# ---- sanitizers: the same tests in builds of their own --------------------------------------
ASAN_TESTS := $(patsubst $(BUILD)/%,$(BUILD)/address/%,$(UNIT_BINS) $(MULTI_BINS))
# TSan sees the threads of one process, so it tests the engine. The tests of collectives without the engine share memory
# between processes with one thread each.
TSAN_SRCS  := $(filter tests/unit/engine/% tests/unit/base/test_lifeline%,$(UNIT_SRCS)) \
              $(filter-out tests/multi/test_coll%,$(MULTI_SRCS))
TSAN_TESTS := $(patsubst %.c,$(BUILD)/thread/%,$(TSAN_SRCS))
# The tests that reach most of the operator's code, also with real agents. The sanitizer reports leaks at its end.
PY_ASAN    := BUILD=$(BUILD)/address $(PY) tests
ASAN_PLANE := 'asan/e2e/test_plane:60,waiting=$(PY_ASAN)/e2e/test_plane.py' \
              'asan/e2e/test_plane_crowd:30,waiting=$(PY_ASAN)/e2e/test_plane_crowd.py' \
              'asan/cluster/test_operator:50,waiting=$(PY_ASAN)/cluster/test_operator.py' \
              'asan/cluster/test_operator_gangs:20,waiting=$(PY_ASAN)/cluster/test_operator_gangs.py' \
              'asan/cluster/test_operator_plane:130,waiting=$(PY_ASAN)/cluster/test_operator_plane.py' \
              'asan/cluster/test_operator_storm:60,waiting=$(PY_ASAN)/cluster/test_operator_storm.py Storms' \
              'asan/cluster/test_operator_agents:190,waiting=$(PY_ASAN)/cluster/test_operator_agents.py Agents'
SAN_ENV    := ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:quarantine_size_mb=8 \
              UBSAN_OPTIONS=print_stacktrace=1 \
              TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=tests/tsan.supp

# -O1 -g1 compiles in half the time, and reports name the same lines.
STEP_ASAN  := asan/build:150=CFLAGS="-O1 -g1" $(SUB) -j$(JOBS) BUILD=$(BUILD)/address SAN=address lib programs tests-bin
STEP_TSAN  := tsan/build:120=$(SUB) -j$(JOBS) BUILD=$(BUILD)/thread SAN=thread tests-tsan
# Nothing that clang builds here is run: it is for clang's warnings, which do not depend on optimization as gcc's do, and for
# linking, where -O0 drops no call.
STEP_CLANG := clang:90=CFLAGS=-O0 $(SUB) -j$(JOBS) BUILD=$(BUILD)/clang CC=clang WERROR=1 NVCC= all tests-bin
STEP_FUZZ_BIN := fuzz/build:150=$(SUB) fuzz-build BUILD=$(BUILD)
STEP_LINT  := lint:400=$(SUB) lint BUILD=$(BUILD)

tests-tsan: $(patsubst %.c,$(BUILD)/%,$(TSAN_SRCS))

# Third-party builds that are kept for the next run: Kubernetes, and Debian 13 and 11. Tests that need one are skipped if it
# failed.
STEP_KUBE  := kubernetes:600,waiting=nice -n 5 $(PY) tests/cluster/binaries.py || [ $$? -eq 77 ]
STEP_ROOTS := roots:400,waiting=tests/e2e/rootfs.sh debian13 debian11 arm64 || true

# The shortest test of each kind: ranks by hand, hvdrun, mpirun, doctor, Python, the runner.
CHECK_E2E   := $(addprefix tests/,e2e/test_env.sh e2e/test_ends.sh e2e/test_pmix.sh e2e/test_check_build.sh \
                 e2e/test_doctor_network.sh e2e/test_deps.sh python/test_runner.py python/test_demo.py \
                 chaos/test_check.py chaos/test_replicas.py litmus/test_litmus.py)
CHECK_TESTS := $(UNIT_BINS) $(MULTI_BINS) $(CHECK_E2E)
TESTS       := $(UNIT_BINS) $(MULTI_BINS) $(PYTHON_TESTS) $(E2E_TESTS) $(CLUSTER_TESTS)
STRICT_TESTS = '$(STEP_ROOTS)' $(STRICT_E2E) '$(STEP_ASAN)' $(ASAN_TESTS) $(ASAN_PLANE) '$(STEP_TSAN)' $(TSAN_TESTS) \
               '$(STEP_CLANG)' '$(STEP_FUZZ_BIN)' $(FUZZ_STEPS) '$(STEP_LINT)' tests/model/run.sh tests/arm64/test_arm64.sh

check: deps-check  ## what to run before a commit: two to four minutes after a build
	$(Q)$(SUB) -j$(JOBS) BUILD=$(BUILD) WERROR=1 all tests-bin
	$(Q)$(RUN) $(BUILD) $(CHECK_TESTS)

test: deps $(if $(filter 1,$(HVD_TEST_STRICT)),deps-arm64)  ## everything that a user needs: programs, launchers, PyTorch, Kubernetes; HVD_TEST_STRICT=1 for every test there is
	$(Q)$(SUB) -j$(JOBS) BUILD=$(BUILD) WERROR=1 all tests-bin staged
	$(Q)$(SUB) BUILD=$(BUILD) test-all

deps-check:
	$(Q)tests/deps.sh build demo check
deps-arm64:
	$(Q)tests/deps.sh build arm64

test-all:
	$(Q)$(SAN_ENV) $(RUN) $(BUILD) '$(STEP_KUBE)' $(TESTS) $(if $(filter 1,$(HVD_TEST_STRICT)),$(STRICT_TESTS))

test-unit: all tests-bin  ## unit and multi-rank tests of this build
	$(Q)$(RUN) $(BUILD) $(UNIT_BINS) $(MULTI_BINS)

test-e2e: all staged  ## Python, launchers, whole programs
	$(Q)$(RUN) $(BUILD) $(PYTHON_TESTS) $(E2E_TESTS)

test-cluster: deps all staged  ## the cluster tests
	$(Q)$(RUN) $(BUILD) $(CLUSTER_TESTS)

test-asan:  ## unit and multi-rank tests with ASan and UBSan
	$(Q)$(SAN_ENV) $(RUN) $(BUILD) '$(STEP_ASAN)' $(ASAN_TESTS)

test-asan-operator:  ## operator and agents with ASan and UBSan on a real control plane
	$(Q)$(SAN_ENV) $(RUN) $(BUILD) '$(STEP_ASAN)' $(ASAN_PLANE)

test-tsan:  ## engine and multi-rank tests with TSan
	$(Q)$(SAN_ENV) $(RUN) $(BUILD) '$(STEP_TSAN)' $(TSAN_TESTS)

model: deps  ## the protocol of repair in Promela, with spin (tests/model/README.md)
	$(Q)$(RUN) $(BUILD) tests/model/run.sh

litmus:  ## the protocols of flags under weak memory (tests/litmus/README.md)
	$(Q)$(RUN) $(BUILD) tests/litmus/test_litmus.py

test-clean: staged  ## the README's commands in a bare Debian 12 container (podman, network; long)
	$(Q)HVD_CLEAN_TARGETS='demo all install check uninstall test' \
	    $(RUN) $(BUILD) $(sort $(wildcard tests/e2e/test_clean*.sh))

# ---- fuzzers: clang's libFuzzer, all of core and agent instrumented --------------------------
ifeq ($(FUZZ),1)
FUZZ_SAN := address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS   += -fsanitize=fuzzer-no-link,$(FUZZ_SAN)
$(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/%.o $(AGENT_A) $(DIAG_A) $(PLANE_A) $(OPERATOR_A) $(MEMBER_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(LDFLAGS) -fsanitize=fuzzer,$(FUZZ_SAN) $(AGENT_LIBS)
fuzz-bin: $(FUZZ_BINS)
-include $(wildcard $(BUILD)/tests/fuzz/*.d)
.PHONY: fuzz-bin
endif

FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,%,$(FUZZ_SRCS))
FUZZ_LONG := handshake frames
# Parsers of a few fields.
FUZZ_SHORT := claims units set_record lifeline
fuzz_for   = $(or $(HVD_FUZZ_SECONDS),$(1))
fuzz_step  = 'fuzz/$(1):$(call fuzz_for,$(2))=tests/fuzz/run.sh $(BUILD)/fuzzing $(1) $(call fuzz_for,$(2))'
FUZZ_STEPS = $(foreach f,$(FUZZERS),$(call fuzz_step,$(f),$(if $(filter $(f),$(FUZZ_LONG)),30,$(if $(filter $(f),$(FUZZ_SHORT)),4,8))))

fuzz-build:
	$(Q)CFLAGS='-O1 -g1' $(SUB) -j$(JOBS) BUILD=$(BUILD)/fuzzing CC=clang SAN= FUZZ=1 fuzz-bin

fuzz: fuzz-build  ## each fuzzer for HVD_FUZZ_SECONDS
	$(Q)$(RUN) $(BUILD) $(FUZZ_STEPS)

.PHONY: check deps-check deps-arm64 test test-all model litmus test-unit test-e2e test-cluster test-asan test-asan-operator test-tsan test-clean tests-tsan fuzz fuzz-build

# ---- programs that the launcher tests start: only hvd.h and libhvd.so ------------------------
# kube_try and pod_of use parts of the operator with a real API server, plane_try uses one with real agents, and agents_try
# simulates thousands of agents.
KUBE_TRY     := $(addprefix $(BUILD)/tests/programs/,kube_try pod_of plane_try agents_try fit_of)
PROGRAM_BINS := $(patsubst %.c,$(BUILD)/%,$(sort $(filter-out $(if $(HAS_MPI),,%/mpi_own.c),$(wildcard tests/programs/*.c))))
$(KUBE_TRY): %: %.o $(PLANE_A) $(OPERATOR_A) $(MEMBER_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(LDFLAGS) $(OPERATOR_LIBS)
$(BUILD)/tests/programs/mpi_own: tests/programs/mpi_own.c $(LIBHVD) $(LIBHVD).0 $(BUILD)/mpi.seen
	@mkdir -p $(@D)
	$(call say,MPICC,$@)
	$(Q)OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(LDFLAGS) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/../..'
$(BUILD)/tests/programs/collectives: $(BUILD)/tests/harness/pattern.o
$(BUILD)/tests/programs/%: $(BUILD)/tests/programs/%.o $(LIBHVD) $(LIBHVD).0
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $(filter %.o,$^) $(LDFLAGS) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/../..'
tests-bin test-e2e test-cluster: $(PROGRAM_BINS)

# ---- hvd-probe, and fake libraries (tests/fake) ----------------------------------------------
FAKES := $(patsubst %.c,$(BUILD)/%.so,$(sort $(wildcard tests/fake/*.c)))
$(BUILD)/tests/fake/%.so: tests/fake/%.c
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fvisibility=default -fPIC -ftls-model=initial-exec -shared -o $@ $(filter %.c,$^) $(LDFLAGS)
$(BUILD)/tests/fake/cuda.so: $(sort $(wildcard tests/fake/cuda/*.[ch])) core/backend/cuda_abi.h core/backend/kernels/kernels.h
$(BUILD)/tests/fake/cuda.so $(BUILD)/tests/fake/cuda-old.so: LDFLAGS += -Wl,-soname,libcuda.so.1
$(FAKES): tests/fake/script.h
ON_FAKES := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/multi/test_gpu*.c tests/multi/test_nccl*.c tests/unit/backend/*.c) tests/multi/test_coll_staged.c)
$(filter %/test_prober %/test_fakes $(ON_FAKES),$(UNIT_BINS) $(MULTI_BINS)): | $(BUILD)/hvd-probe $(FAKES)

# A fake libnccl.so.2 for core/backend/nccl*, with the functions of each of these versions (tests/fake/README.md).
NCCL_FAKE_SRCS := $(sort $(wildcard tests/fake/nccl/*.c))
NCCL_FAKES     := $(foreach v,2.13 2.14 2.18 2.27 2.31,$(BUILD)/tests/fake/nccl-$(v)/libnccl.so.2)
$(BUILD)/tests/fake/nccl-2.13/%: NCCL_BUILT := 21304
$(BUILD)/tests/fake/nccl-2.13/%: NCCL_CUDA := 11.7
$(BUILD)/tests/fake/nccl-2.14/%: NCCL_BUILT := 21403
$(BUILD)/tests/fake/nccl-2.14/%: NCCL_CUDA := 11.8
$(BUILD)/tests/fake/nccl-2.18/%: NCCL_BUILT := 21806
$(BUILD)/tests/fake/nccl-2.18/%: NCCL_CUDA := 12.2
$(BUILD)/tests/fake/nccl-2.27/%: NCCL_BUILT := 22707
$(BUILD)/tests/fake/nccl-2.27/%: NCCL_CUDA := 13.0
$(BUILD)/tests/fake/nccl-2.31/%: NCCL_BUILT := 23102
$(BUILD)/tests/fake/nccl-2.31/%: NCCL_CUDA := 13.0
$(NCCL_FAKES): $(NCCL_FAKE_SRCS) tests/fake/nccl/fake.h tests/fake/cuda/control.h core/backend/nccl_abi.h
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -DFAKE_NCCL_BUILT=$(NCCL_BUILT) -DFAKE_NCCL_CUDA=\"$(NCCL_CUDA)\" \
	    -fPIC -ftls-model=initial-exec -shared -Wl,-soname,libnccl.so.2 \
	    -o $@ $(NCCL_FAKE_SRCS) $(LDFLAGS) -ldl
tests-bin test-e2e: $(FAKES) $(NCCL_FAKES)
$(filter $(ON_FAKES),$(UNIT_BINS) $(MULTI_BINS)): | $(NCCL_FAKES)

include tests/chaos/chaos.mk
include tests/cluster/cluster.mk
include tests/arm64/arm64.mk

# tests that start a whole job of ranks
$(filter %/test_agent_lifelines,$(UNIT_BINS)): | $(BUILD)/hvdrun $(BUILD)/hvd-agent

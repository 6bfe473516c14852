# SPDX-License-Identifier: Apache-2.0
# Programs that need a GPU. In make test the tests run on the fake driver if there is none. make test-gpu is for a
# machine with a GPU. Included by the Makefile, before tests/test.mk.

GPU_TESTS := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/gpu/test_*.c)))
GPU_BENCH := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/gpu/bench_*.c)))
UNIT_BINS += $(GPU_TESTS) $(GPU_BENCH)

$(BUILD)/tests/gpu/%: $(BUILD)/tests/gpu/%.o $(HARNESS_A) $(LIB_A) | $(BUILD)/tests/fake/cuda.so $(BUILD)/tests/fake/nccl-2.27/libnccl.so.2
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $< $(HARNESS_A) $(LIB_A) $(LDFLAGS) $(if $(findstring /test_,$@),-lcmocka) $(LIB_LIBS)
tests-bin: $(GPU_TESTS) $(GPU_BENCH)

# What both targets run. The kit has the shared libraries that a machine without our packages lacks.
GPU_PROGRAMS := $(GPU_TESTS) $(GPU_BENCH) $(BUILD)/tests/multi/test_gpu $(BUILD)/tests/multi/test_gpu_elastic
gpu-programs: lib programs $(KERNELS) $(GPU_PROGRAMS)

test-gpu: gpu-programs  ## kernels, operations, hvd.torch and hvd-doctor on this machine's GPU
	$(Q)BUILD=$(BUILD) PY=$(PY) tests/gpu/run.sh test

bench-gpu: gpu-programs  ## kernels beside the device's copy, sums and steps beside bare NCCL; figures in build/bench/gpu-device.txt
	$(Q)BUILD=$(BUILD) PY=$(PY) tests/gpu/run.sh bench

gpu-kit: gpu-programs  ## for a machine with a GPU and without a compiler: copy the checkout with build/ there, run tests/gpu/run.sh test|bench
	$(Q)rm -rf $(BUILD)/gpu-kit && mkdir -p $(BUILD)/gpu-kit
	$(Q)ldd $(GPU_PROGRAMS) $(LIBHVD) $(PROGRAMS) | awk '$$2 == "=>" && $$3 !~ /\/lib(c|m|dl|rt|pthread)\.so/ {print $$3}' | sort -u \
	    | xargs cp -L -t $(BUILD)/gpu-kit
	$(if $(KERNELS),,@echo 'no kernels for GPUs are in the kit (make deps fetches nvcc): what needs them will be skipped')

.PHONY: gpu-programs test-gpu bench-gpu gpu-kit

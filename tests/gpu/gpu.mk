# SPDX-License-Identifier: Apache-2.0
# Programs that need a GPU. In make test the tests run on the fake driver if there is none. make test-gpu is for a
# machine with a GPU. Included by the Makefile, before tests/test.mk.

GPU_TESTS := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/gpu/test_*.c)))
GPU_BENCH := $(BUILD)/tests/gpu/bench_gpu $(BUILD)/tests/gpu/bench_allreduce
UNIT_BINS += $(GPU_TESTS) $(GPU_BENCH)

$(BUILD)/tests/gpu/%: $(BUILD)/tests/gpu/%.o $(HARNESS_A) $(LIB_A) | $(BUILD)/tests/fake/cuda.so $(BUILD)/tests/fake/nccl-2.27/libnccl.so.2
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $< $(HARNESS_A) $(LIB_A) $(LDFLAGS) $(if $(findstring /test_,$@),-lcmocka) $(LIB_LIBS)
tests-bin: $(GPU_TESTS) $(GPU_BENCH)

test-gpu: lib programs $(KERNELS) $(GPU_TESTS) $(BUILD)/tests/multi/test_gpu  ## kernels, operations, hvd.torch and hvd-doctor on this machine's GPU
	$(Q)$(PY) tests/run.py --alone $(BUILD) $(GPU_TESTS) "gpu/device=env HVD_TEST_REAL_GPU=1 $(BUILD)/tests/multi/test_gpu" \
	    tests/gpu/test_torch.sh tests/gpu/test_doctor.sh

bench-gpu: lib $(KERNELS) $(GPU_BENCH)  ## kernels beside the device's copy, hvd beside bare NCCL
	$(Q)for bench in $(GPU_BENCH); do $$bench || { rc=$$?; [ $$rc -eq 77 ] || exit $$rc; }; done

.PHONY: test-gpu bench-gpu

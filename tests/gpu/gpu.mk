# SPDX-License-Identifier: Apache-2.0
# What wants a GPU. In make test the tests run on the fake driver where there is none; make test-gpu is
# for a machine that has one. Included by the Makefile, before tests/test.mk.

GPU_TESTS := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/gpu/test_*.c)))
GPU_BENCH := $(BUILD)/tests/gpu/bench_gpu
UNIT_BINS += $(GPU_TESTS) $(GPU_BENCH)

$(BUILD)/tests/gpu/%: $(BUILD)/tests/gpu/%.o $(HARNESS_A) $(LIB_A) | $(BUILD)/tests/fake/cuda.so
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $< $(HARNESS_A) $(LIB_A) $(LDFLAGS) $(if $(findstring /test_,$@),-lcmocka) $(LIB_LIBS)
tests-bin: $(GPU_TESTS) $(GPU_BENCH)

test-gpu: lib $(KERNELS) $(GPU_TESTS)  ## the kernels, the driver and hvd.torch on this machine's GPU
	$(Q)tests/run.sh $(BUILD) $(GPU_TESTS) tests/gpu/test_torch.sh

bench-gpu: lib $(KERNELS) $(GPU_BENCH)  ## pack and unpack of 161 gradients beside the device's copy
	$(Q)$(GPU_BENCH)

.PHONY: test-gpu bench-gpu

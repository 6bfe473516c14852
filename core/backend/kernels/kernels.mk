# SPDX-License-Identifier: Apache-2.0
# The kernels for GPUs: one file beside libhvd.so for all of them, built where there is nvcc (make deps
# fetches one); nothing else needs it. NVCC= (empty) leaves them out. Included by the Makefile.

ifeq ($(origin NVCC),undefined)
NVCC := $(shell core/backend/kernels/nvcc.sh find)
endif
KERNELS      := $(if $(NVCC),$(BUILD)/hvd_kernels.fatbin)
KERNELS_SM   := 75 80 86 89 90 100 120
# The oldest as PTX too: the driver compiles that for GPUs that are not in the list.
KERNELS_PTX  := 75
KERNELS_ARCH := $(foreach n,$(KERNELS_SM),-gencode arch=compute_$(n)$(comma)code=sm_$(n)) \
                -gencode arch=compute_$(KERNELS_PTX)$(comma)code=compute_$(KERNELS_PTX)
# Products are rounded before they are added, as on the host.
NVCCFLAGS    := -std=c++17 -O3 --fmad=false -I. --Werror all-warnings --no-compress --threads 2

$(BUILD)/hvd_kernels.fatbin: core/backend/kernels/hvd_kernels.cu core/backend/kernels/kernels.h core/backend/kernels/kernels.mk
	@mkdir -p $(@D)
	$(call say,NVCC,$@)
	$(Q)$(NVCC) $(NVCCFLAGS) $(KERNELS_ARCH) --fatbin -o $@ $<

# Compiles the comparison of cuda_abi.h with the real cuda.h, where that is installed.
CUDA_INCLUDE := $(if $(NVCC),$(patsubst %/cuda.h,%,$(wildcard $(dir $(NVCC))../include/cuda.h)))
CUDA_CHECKED := $(if $(CUDA_INCLUDE),$(BUILD)/tests/unit/backend/cuda_abi_check.o)
$(BUILD)/tests/unit/backend/cuda_abi_check.o: CPPFLAGS += -isystem $(CUDA_INCLUDE)

kernels: $(KERNELS)
all: kernels
.PHONY: kernels
tests-bin: $(CUDA_CHECKED)

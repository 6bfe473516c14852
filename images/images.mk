# SPDX-License-Identifier: Apache-2.0
# The bundle that goes into every training image, and container images. Included by the Makefile;
# images/README.md describes and explains their content.

BUNDLE      := $(BUILD)/bundle
BUNDLE_AT   := /hvd
BUNDLE_OWN  := $(addprefix $(BUILD)/images/own/,hvd-agent hvd-doctor hvdrun)
GLIBC_LEAST := 2.28
GLIBC_STUBS := $(BUILD)/images/glibc$(GLIBC_LEAST)
OLD_GLIBC   := $(BUILD)/images/bundle/glibc228.o
OWN_LOADER  := $(patsubst x86_64,ld-linux-x86-64.so.2,$(patsubst aarch64,ld-linux-aarch64.so.1,$(MACHINE)))

bundle: $(BUNDLE)/share  ## agent, doctor, library and Python package for any image with glibc 2.28
	@:

# libhvd.so and hvd-probe are loaded by the image's loader, with the image's C library.
OLD_LIBS := -L$(GLIBC_STUBS) -Wl,--no-as-needed -lpthread -ldl -Wl,--as-needed -lm
$(GLIBC_STUBS)/libc.so: images/bundle/stubs.sh
	$(call say,STUBS,$(@D))
	$(Q)CC='$(CC)' images/bundle/stubs.sh $(GLIBC_LEAST) $(abspath $(@D))

$(BUILD)/images/old/libhvd.so: $(call objs,$(LIB_SRCS)) $(OLD_GLIBC) core/libhvd.map $(GLIBC_STUBS)/libc.so
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -shared -o $@ $(filter %.o,$^) -L$(GLIBC_STUBS) $(LDFLAGS) -Wl,-soname,libhvd.so.0 \
	    -Wl,--version-script=core/libhvd.map -Wl,-z,defs -l:libsodium.a $(OLD_LIBS)

$(BUILD)/images/old/hvd-probe: $(call objs,$(PROBER_SRCS)) $(OLD_GLIBC) $(LIB_A) $(GLIBC_STUBS)/libc.so
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $(filter %.o %.a,$^) $(LDFLAGS) $(OLD_LIBS)

# hvd-agent, hvdrun and hvd-doctor are loaded by the bundle's own loader; the kernel needs that loader's
# absolute path. RPATH instead of RUNPATH, because RPATH takes precedence over LD_LIBRARY_PATH and also
# applies to the libraries' own libraries.
OWN_FLAGS := -Wl,--dynamic-linker=$(BUNDLE_AT)/private/$(OWN_LOADER) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../private'
$(BUILD)/images/own/hvd-agent $(BUILD)/images/own/hvdrun: $(BUILD)/images/own/%: $(BUILD)/agent/main_%.o \
    $(BUILD)/images/bundle/environment.o $(AGENT_A) $(DIAG_A) $(MEMBER_A) $(LIB_A)
$(BUILD)/images/own/hvd-agent: $(BUILD)/images/bundle/topology.o
$(BUILD)/images/own/hvd-doctor: $(call objs,$(DOCTOR_SRCS)) $(BUILD)/images/bundle/environment.o $(DIAG_A) $(MEMBER_A) $(LIB_A)
$(BUNDLE_OWN):
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS) $(OWN_FLAGS) $(AGENT_LIBS)
$(BUILD)/images/bundle/topology.o: CPPFLAGS += $(call pc,--cflags,hwloc)

$(BUILD)/images/hvd-launch: $(call objs,images/bundle/launch.c images/bundle/install.c)
	$(call say,LD,$@)
	$(Q)$(CC) -static -o $@ $^ $(LDFLAGS)

BUNDLE_PARTS := $(BUNDLE_OWN) $(BUILD)/images/old/libhvd.so $(BUILD)/images/old/hvd-probe $(BUILD)/images/hvd-launch
$(BUNDLE)/share: $(BUNDLE_PARTS) $(KERNELS) $(PROGRAMS) $(shell find core/python/hvd -name '*.py') images/stage.sh
	$(call say,STAGE,$(BUNDLE))
	$(Q)CC='$(CC)' images/stage.sh bundle $(BUILD) $(BUNDLE)
	$(Q)touch $@

# ---- container images ----------------------------------------------------------------------
# IMAGES="bundle operator example"   REGISTRY=registry.example/path (default: localhost)
IMAGES ?= bundle operator example
ifneq ($(wildcard operator/main_hvd-operator.c),)
OPERATOR_STAGE := $(BUILD)/images/operator/usr
$(OPERATOR_STAGE): $(BUILD)/hvd-operator $(BUILD)/hvd-plane images/stage.sh
	$(call say,STAGE,$(@D))
	$(Q)CC='$(CC)' images/stage.sh operator $(BUILD) $(@D)
	$(Q)touch $@
endif

staged: bundle $(OPERATOR_STAGE)
images: deps staged  ## container images by podman, without a registry: build/images/*.tar
	$(Q)PLATFORM=linux/$(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(MACHINE))) \
	    images/images.sh $(BUILD) $(VERSION) $(IMAGES)

.PHONY: bundle staged images

# SPDX-License-Identifier: Apache-2.0
# hvd: one makefile, non-recursive. `make help` lists what there is to make.
#
# BUILD=dir   where objects go (build)          CC=clang     another compiler
# SAN=address|thread                            V=1          show the commands
# WERROR=1    warnings are errors               DESTDIR= PREFIX= PYTHONDIR=   for install

CC       ?= gcc
ifeq ($(origin CC),default)
CC       := gcc
endif
# The architecture that the compiler builds for. In a cross build it is not this machine's.
MACHINE  := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
PREFIX   ?= /usr/local
DESTDIR  ?=
SAN      ?=
V        ?= 0
BUILD    ?= build$(if $(SAN),/$(SAN))
PY       ?= /usr/bin/python3
HEADERS  := $(sort $(wildcard core/include/*.h))
VERSION  := $(shell sed -n 's/^\#define HVD_VERSION "\(.*\)"/\1/p' core/include/hvd.h)
Q        := $(if $(filter 1,$(V)),,@)
say       = $(if $(filter 1,$(V)),,@printf '  %-6s %s\n' $(1) $(2))

comma := ,

# ---- what is there -------------------------------------------------------------------------
# deps.sh installs what is missing; the results of pkg-config are empty until then.
pc = $(shell pkg-config $(1) $(2) 2>/dev/null)
PKGS_MEMBER := libcurl libmicrohttpd gnutls jansson libsodium
PKGS_AGENT  := $(PKGS_MEMBER) hwloc yaml-0.1
PKGS_DOCTOR := $(PKGS_MEMBER)
PKGS_OPERATOR := $(PKGS_MEMBER) yaml-0.1
PKGS_PLANE  := $(filter-out libcurl,$(PKGS_MEMBER))

# The site's MPI: only the plugin libhvd_mpi.so is compiled against it. HAS_MPI tells one MPI from another:
# a checksum of its preprocessed mpi.h, with all paths and macros, which every mpicc can give. Empty: no MPI.
MPICC    ?= mpicc
HAS_MPI  := $(shell seen=$$(printf '\043include <mpi.h>\n' | $(MPICC) -E -dD -x c - 2>/dev/null) && printf '%s' "$$seen" | cksum)

CPPFLAGS += -D_GNU_SOURCE -I. -Icore/include
CFLAGS   ?= -O2 -g
CFLAGS   += -std=gnu11 -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes \
            -Wvla -Wpointer-arith -Wno-unused-parameter -fvisibility=hidden -fPIC -pthread \
            $(if $(filter 1,$(WERROR)),-Werror)
LDFLAGS  += -pthread -Wl,--as-needed
ifneq ($(SAN),)
SANFLAGS := -fno-omit-frame-pointer -fsanitize=$(SAN)$(if $(filter address,$(SAN)),$(comma)undefined -fno-sanitize-recover=undefined)
CFLAGS   += $(SANFLAGS)
LDFLAGS  += $(SANFLAGS)
endif

# ---- sources: a folder is a layer, a file a noun -------------------------------------------
MPI_PLUGIN_SRC := core/backend/mpi_plugin.c
LIB_SRCS    := $(filter-out $(MPI_PLUGIN_SRC),$(sort $(foreach d,base boot transport coll p2p negotiate engine backend,$(wildcard core/$(d)/*.c))))
MEMBER_SRCS := $(sort $(wildcard core/json/*.c core/http/*.c core/member/*.c))
AGENT_SRCS  := $(sort $(filter-out agent/main_%.c,$(wildcard agent/*.c)))
DIAG_SRCS   := $(sort $(wildcard diagnostics/*.c diagnostics/checks/*.c diagnostics/probes/*.c \
                 diagnostics/workers/*.c \
                 diagnostics/report/*.c) $(filter-out diagnostics/cli/main_%.c,$(wildcard diagnostics/cli/*.c)))
DOCTOR_SRCS := $(wildcard diagnostics/cli/main_hvd-doctor.c)
PLANE_SRCS := $(sort $(wildcard operator/coordinator/*.c))
OPERATOR_SRCS := $(sort $(filter-out operator/main_%.c $(PLANE_SRCS),$(wildcard operator/*.c operator/*/*.c)))
PROBER_SRCS := $(sort $(wildcard diagnostics/prober/*.c))
objs = $(patsubst %.c,$(BUILD)/%.o,$(1))

LIBHVD   := $(BUILD)/libhvd.so
MPI_PLUGIN := $(if $(HAS_MPI),$(BUILD)/libhvd_mpi.so)
LIB_A    := $(BUILD)/libhvd_core.a
AGENT_A  := $(BUILD)/libhvd_agent.a
MEMBER_A := $(BUILD)/libhvd_member.a
DIAG_A   := $(BUILD)/libhvd_diag.a
OPERATOR_A := $(BUILD)/libhvd_operator.a
PLANE_A  := $(BUILD)/libhvd_plane.a
SIM_A    := $(BUILD)/libhvd_cluster_sim.a
PROGRAMS := $(patsubst agent/main_%.c,$(BUILD)/%,$(wildcard agent/main_*.c)) \
            $(patsubst diagnostics/cli/main_%.c,$(BUILD)/%,$(wildcard diagnostics/cli/main_*.c)) \
            $(patsubst diagnostics/prober/main_%.c,$(BUILD)/%,$(wildcard diagnostics/prober/main_*.c)) \
            $(patsubst operator/main_%.c,$(BUILD)/%,$(wildcard operator/main_*.c))
HOROVODRUN := $(BUILD)/horovodrun
LIB_LIBS    := -lsodium -ldl -lm
AGENT_LIBS  := $(call pc,--libs,$(PKGS_AGENT)) $(LIB_LIBS)
DOCTOR_LIBS := $(call pc,--libs,$(PKGS_DOCTOR)) $(LIB_LIBS)
OPERATOR_LIBS := $(call pc,--libs,$(PKGS_OPERATOR)) $(LIB_LIBS)
PLANE_LIBS  := $(call pc,--libs,$(PKGS_PLANE)) $(LIB_LIBS)

UNIT_SRCS  := $(sort $(wildcard tests/unit/*/test_*.c))
MULTI_SRCS := $(sort $(wildcard tests/multi/*.c))
FUZZ_SRCS  := $(sort $(wildcard tests/fuzz/fuzz_*.c))
BENCH_SRCS := $(sort $(wildcard tests/bench/bench_*.c))
# `make all` builds the benchmarks, and `make test` alone installs cmocka. So harness files that use cmocka
# have an archive of their own, which only tests are linked with. tests/lint/includes.sh checks the rest.
ASSERTING  := $(shell grep -lsx '\#include <cmocka.h>' tests/harness/*.c)
HARNESS    := $(sort $(filter-out $(ASSERTING),$(wildcard tests/harness/*.c)))
UNIT_BINS  := $(patsubst %.c,$(BUILD)/%,$(UNIT_SRCS))
MULTI_BINS := $(patsubst %.c,$(BUILD)/%,$(MULTI_SRCS))
FUZZ_BINS  := $(patsubst %.c,$(BUILD)/%,$(FUZZ_SRCS))
BENCH_BINS := $(patsubst %.c,$(BUILD)/%,$(BENCH_SRCS))

.DEFAULT_GOAL := all
.SECONDARY:
.DELETE_ON_ERROR:

all: lib programs examples bench-programs summary  ## library, programs, examples
lib: $(LIBHVD) $(LIBHVD).0 $(MPI_PLUGIN)
	@:
programs: $(PROGRAMS) $(HOROVODRUN)
	@:
$(HOROVODRUN): agent/horovodrun.sh
	$(Q)install -D -m 755 $< $@
tests-bin: $(UNIT_BINS) $(MULTI_BINS)

# ---- rules ---------------------------------------------------------------------------------
$(BUILD)/core/coll/%.o: CFLAGS += -O3
# Kernels: the same bits at every vector width, so no fused multiply-add.
$(BUILD)/core/coll/reduce%.o: CFLAGS += -ffp-contract=off
ifeq ($(SAN),thread)
# reduce.c shows the sanitizer what the kernels read and write.
$(BUILD)/core/coll/reduce_%.o: CFLAGS += -fno-sanitize=thread
endif
# Computing the values that tests compare results with takes half of the tests' time, so it is not instrumented.
# Sanitizers still see the memcpy and memcmp of whole blocks by which tests use these values.
$(BUILD)/tests/harness/values.o $(BUILD)/tests/harness/pattern.o $(BUILD)/tests/harness/formula.o: CFLAGS += -O3 -fno-sanitize=all
ifeq ($(MACHINE),x86_64)
$(BUILD)/core/coll/reduce_avx2.o: CFLAGS += -mavx2 -mf16c
$(BUILD)/core/coll/reduce_avx512.o: CFLAGS += -mavx2 -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq
endif
$(BUILD)/agent/%.o $(BUILD)/core/member/%.o $(BUILD)/core/http/%.o $(BUILD)/core/json/%.o $(BUILD)/diagnostics/%.o $(BUILD)/operator/%.o: CPPFLAGS += $(call pc,--cflags,$(PKGS_AGENT))
# Only the header: the library is opened at run time.
$(BUILD)/core/boot/pmix.o: CPPFLAGS += $(call pc,--cflags,pmix)
$(BUILD)/tests/%.o: CPPFLAGS += $(call pc,--cflags,$(PKGS_AGENT))
# patterns_data.c includes these files by .incbin, which -MMD does not see.
$(BUILD)/diagnostics/patterns_data.o: $(sort $(wildcard diagnostics/patterns/*.txt))

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# Files that these sources include by .incbin.
$(BUILD)/operator/page/page_files.o: $(wildcard operator/page/page.html operator/page/page.css operator/page/page.js)
$(BUILD)/diagnostics/rules.o: diagnostics/rules.conf

$(LIB_A): $(call objs,$(LIB_SRCS))
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(AGENT_A): $(call objs,$(AGENT_SRCS))
$(MEMBER_A): $(call objs,$(MEMBER_SRCS))
$(DIAG_A): $(call objs,$(DIAG_SRCS))
$(OPERATOR_A): $(call objs,$(OPERATOR_SRCS))
$(PLANE_A): $(call objs,$(PLANE_SRCS))
$(SIM_A): $(call objs,$(sort $(wildcard tests/harness/operator/*.c)))
$(AGENT_A) $(MEMBER_A) $(DIAG_A) $(OPERATOR_A) $(PLANE_A) $(SIM_A):
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# libhvd.so needs libc alone: libsodium is linked in statically and hidden. (Sanitizers: no -z defs.)
$(LIBHVD): $(call objs,$(LIB_SRCS)) core/libhvd.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -o $@ $(filter %.o,$^) $(LDFLAGS) -Wl,-soname,libhvd.so.0 \
	    -Wl,--version-script=core/libhvd.map $(if $(SAN),,-Wl$(comma)-z$(comma)defs) \
	    -l:libsodium.a -ldl -lm

$(LIBHVD).0: $(LIBHVD)
	$(Q)ln -sf libhvd.so $@

# Another MPI (`module swap`) makes another plugin: this file changes with it, and only then.
$(BUILD)/mpi.seen: FORCE
	@mkdir -p $(@D)
	@echo '$(MPICC) $(HAS_MPI)' | cmp -s - $@ || echo '$(MPICC) $(HAS_MPI)' >$@
FORCE:

$(BUILD)/libhvd_mpi.so: $(MPI_PLUGIN_SRC) core/backend/mpi_plugin.h $(BUILD)/mpi.seen
	@mkdir -p $(@D)
	$(call say,MPICC,$@)
	$(Q)OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC) $(CPPFLAGS) $(CFLAGS) -shared -o $@ $< $(LDFLAGS)

$(BUILD)/%: $(BUILD)/agent/main_%.o $(AGENT_A) $(DIAG_A) $(MEMBER_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(LDFLAGS) $(AGENT_LIBS)

$(BUILD)/hvd-doctor: $(call objs,$(DOCTOR_SRCS)) $(DIAG_A) $(MEMBER_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(LDFLAGS) $(DOCTOR_LIBS)

$(BUILD)/hvd-operator: $(BUILD)/operator/main_hvd-operator.o $(OPERATOR_A) $(MEMBER_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(LDFLAGS) $(OPERATOR_LIBS)

# hvd-plane parses what tenants send: without the client of the API server, and without libcurl.
$(BUILD)/hvd-plane: $(BUILD)/operator/main_hvd-plane.o $(PLANE_A) $(OPERATOR_A) $(MEMBER_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(LDFLAGS) $(PLANE_LIBS)

# hvd-probe opens an image's own libraries and needs libc alone.
$(BUILD)/hvd-probe: $(call objs,$(PROBER_SRCS)) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(LDFLAGS) -ldl

HARNESS_A := $(BUILD)/tests/libharness.a
ASSERTING_A := $(BUILD)/tests/libasserting.a
$(HARNESS_A): $(call objs,$(HARNESS))
$(ASSERTING_A): $(call objs,$(ASSERTING))
$(HARNESS_A) $(ASSERTING_A):
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# tests of programs' parts: all archives, what is not used is not linked
PROGRAM_TESTS := $(patsubst %.c,$(BUILD)/%,$(filter $(foreach d,agent member json diagnostics operator api,tests/unit/$(d)/%),$(UNIT_SRCS)))
$(PROGRAM_TESTS): EXTRA_A = $(AGENT_A) $(SIM_A) $(DIAG_A) $(PLANE_A) $(OPERATOR_A) $(MEMBER_A)
$(PROGRAM_TESTS): EXTRA_LIBS = $(AGENT_LIBS)
$(PROGRAM_TESTS): $(AGENT_A) $(SIM_A) $(DIAG_A) $(PLANE_A) $(OPERATOR_A) $(MEMBER_A)

$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(ASSERTING_A) $(HARNESS_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $< $(ASSERTING_A) $(HARNESS_A) $(EXTRA_A) $(LIB_A) $(LDFLAGS) -lcmocka $(EXTRA_LIBS) $(LIB_LIBS)

# multi: many ranks, through the public library only
$(BUILD)/tests/multi/%: $(BUILD)/tests/multi/%.o $(ASSERTING_A) $(HARNESS_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $< $(ASSERTING_A) $(HARNESS_A) $(LIB_A) $(LDFLAGS) -lcmocka $(LIB_LIBS)

$(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.o $(HARNESS_A) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $< $(HARNESS_A) $(LIB_A) $(LDFLAGS) $(LIB_LIBS)

-include $(shell find $(BUILD) -name '*.d' -not -path '*/fuzz/*' 2>/dev/null)

include core/backend/kernels/kernels.mk
include tests/gpu/gpu.mk
include tests/test.mk
include tests/bench/bench.mk
include examples/examples.mk
include images/images.mk

# ---- lint and format -----------------------------------------------------------------------
C_FILES := $(shell git ls-files '*.c' '*.h' 2>/dev/null || find core agent operator diagnostics tests examples -name '*.[ch]')
SH_FILES = $(shell git ls-files '*.sh' .ci/run 2>/dev/null)

format:  ## clang-format every C file in place
	$(Q)clang-format -i $(C_FILES)

lint: deps  ## format, include directions, clang-tidy, shellcheck, sizes of files
	$(Q)clang-format --dry-run -Werror $(C_FILES)
	$(Q)tests/lint/includes.sh
	$(Q)tests/lint/sizes.sh
	$(Q)shellcheck -x $(SH_FILES)
	$(Q)tests/lint/tidy.sh "$(BUILD)" $(CPPFLAGS) $(call pc,--cflags,$(PKGS_AGENT) pmix ompi-c)
	@echo 'lint: ok'

# ---- install -------------------------------------------------------------------------------
# PYTHONDIR: where python3 looks for packages under PREFIX, or else PREFIX/lib/python3/dist-packages.
# Empty leaves the Python package out.
PYTHONDIR ?= $(shell $(PY) -c 'import site; p = "$(PREFIX)/lib/"; \
    print(([d for d in site.getsitepackages() if d.startswith(p)] or [p + "python3/dist-packages"])[0])' 2>/dev/null \
    || echo $(PREFIX)/lib/python3/dist-packages)
BINDIR := $(DESTDIR)$(PREFIX)/bin
LIBDIR := $(DESTDIR)$(PREFIX)/lib
INCDIR := $(DESTDIR)$(PREFIX)/include
MANDIR := $(DESTDIR)$(PREFIX)/share/man/man1
BASHDIR := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSHDIR := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
OWNDIR := $(DESTDIR)$(PREFIX)/share/hvd
MAN_PAGES := $(sort $(wildcard agent/*.1 diagnostics/*.1 operator/*.1))
INSTALL_DIRS = $(BINDIR) $(LIBDIR)/pkgconfig $(INCDIR) $(MANDIR) $(BASHDIR) $(ZSHDIR) $(OWNDIR) $(PYDIR)
# The dynamic loader's cache is this system's, so not for DESTDIR.
refresh_loader = $(Q)[ -n '$(DESTDIR)' ] || [ "$$(id -u)" -ne 0 ] || ! command -v ldconfig >/dev/null || ldconfig

PYDIR = $(addsuffix /hvd,$(addprefix $(DESTDIR),$(PYTHONDIR)))
# OWNDIR/directories lists the folders that install has made, so that uninstall removes these and no others.
install: lib programs $(KERNELS)  ## library, programs, Python package, man pages into DESTDIR PREFIX
	$(Q)made=$$(LC_ALL=C mkdir -pv $(INSTALL_DIRS) | sed -n "s,^mkdir: created directory '$(DESTDIR)\(.*\)'$$,\1,p") && \
	    { [ -z "$$made" ] || echo "$$made" >>$(OWNDIR)/directories; }
	$(Q)install -m 755 $(LIBHVD) $(LIBDIR)/libhvd.so.$(VERSION)
	$(Q)ln -sf libhvd.so.$(VERSION) $(LIBDIR)/libhvd.so.0
	$(Q)ln -sf libhvd.so.0 $(LIBDIR)/libhvd.so
	$(if $(MPI_PLUGIN),$(Q)install -m 755 $(MPI_PLUGIN) $(LIBDIR))
	$(if $(KERNELS),$(Q)install -m 644 $(KERNELS) $(LIBDIR))
	$(Q)install -m 644 $(HEADERS) $(INCDIR)
	$(Q)install -m 755 $(PROGRAMS) $(HOROVODRUN) $(BINDIR)
	$(Q)install -m 644 $(MAN_PAGES) $(MANDIR)
	$(Q)install -m 644 diagnostics/hvd-doctor.bash $(BASHDIR)/hvd-doctor
	$(Q)install -m 644 agent/hvdrun.bash $(BASHDIR)/hvdrun
	$(Q)install -m 644 diagnostics/_hvd-doctor agent/_hvdrun $(ZSHDIR)
	$(Q)printf 'prefix=%s\nlibdir=$${prefix}/lib\nincludedir=$${prefix}/include\n\nName: hvd\nDescription: collective operations for data-parallel training\nVersion: %s\nLibs: -L$${libdir} -lhvd\nCflags: -I$${includedir}\n' \
	    '$(PREFIX)' '$(VERSION)' > $(LIBDIR)/pkgconfig/hvd.pc
	$(if $(PYDIR),$(Q)cd core/python/hvd && find . -name '*.py' -exec install -D -m 644 {} $(abspath $(PYDIR))/{} \;)
	$(if $(PYDIR),$(Q)ln -srf $(LIBDIR)/libhvd.so.0 $(PYDIR)/libhvd.so)
	$(refresh_loader)
	@echo 'hvd $(VERSION): programs in $(PREFIX)/bin, library in $(PREFIX)/lib$(if $(PYDIR),$(comma) Python package in $(PYTHONDIR))'
	@$(PY) -c 'import site, sys; sys.exit("$(PYTHONDIR)" in ["", *site.getsitepackages()])' 2>/dev/null && \
	    echo 'python3 does not look for packages there: set PYTHONPATH=$(PYTHONDIR)' || true

uninstall:  ## remove what install put there
	$(Q)rm -f $(LIBDIR)/libhvd.so* $(LIBDIR)/libhvd_mpi.so $(LIBDIR)/hvd_kernels.fatbin $(LIBDIR)/pkgconfig/hvd.pc $(addprefix $(INCDIR)/,$(notdir $(HEADERS))) \
	    $(patsubst $(BUILD)/%,$(BINDIR)/%,$(PROGRAMS) $(HOROVODRUN)) \
	    $(addprefix $(MANDIR)/,$(notdir $(MAN_PAGES))) $(addprefix $(BASHDIR)/,hvd-doctor hvdrun) $(addprefix $(ZSHDIR)/,_hvd-doctor _hvdrun)
	$(if $(PYDIR),$(Q)rm -rf $(PYDIR))
	$(Q)made=$$(tac $(OWNDIR)/directories 2>/dev/null); rm -f $(OWNDIR)/directories; \
	    for folder in $$made; do [ ! -d "$(DESTDIR)$$folder" ] || rmdir --ignore-fail-on-non-empty "$(DESTDIR)$$folder"; done
	$(refresh_loader)
	@echo 'hvd $(VERSION): removed from $(PREFIX)'

clean:  ## remove build/
	$(Q)rm -rf build

deps:  ## install the Debian packages that are missing (root or sudo), and fetch nvcc
	$(Q)tests/deps.sh
	$(Q)core/backend/kernels/nvcc.sh get || [ $$? -eq 77 ]

summary: lib programs
	@printf 'hvd %s: %s' '$(VERSION)' '$(LIBHVD)'; printf ' %s' $(PROGRAMS); \
	    printf '%s\n' '$(if $(MPI_PLUGIN), $(MPI_PLUGIN), (no MPI: $(MPICC) and mpi.h are not here))'
	@echo '$(if $(KERNELS),kernels for GPUs: $(KERNELS)$(comma) sm_$(KERNELS_SM),no kernels for GPUs: no nvcc of CUDA 13 or newer in PATH or CUDA_HOME (make deps fetches one))'

help:  ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: all lib programs examples bench-programs tests-bin format lint install uninstall clean deps summary help FORCE

# SPDX-License-Identifier: Apache-2.0
# chaos: the ranks of the chaos run and the tests of its parts. See README.md.

CHAOS_BIN  := $(addprefix $(BUILD)/tests/chaos/,worker stages)
CHAOS_OBJS := $(filter-out $(CHAOS_BIN:=.o),$(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/chaos/*.c)))
MINUTES    ?= 10

$(CHAOS_BIN): %: %.o $(CHAOS_OBJS) $(LIBHVD) $(LIBHVD).0
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $(filter %.o,$^) $(LDFLAGS) -L$(BUILD) -lhvd -lm -Wl,-rpath,'$$ORIGIN/../..'
tests-bin test-e2e: $(CHAOS_BIN)

$(filter $(BUILD)/tests/unit/chaos/%,$(UNIT_BINS)): EXTRA_A = $(CHAOS_OBJS)
$(filter $(BUILD)/tests/unit/chaos/%,$(UNIT_BINS)): $(CHAOS_OBJS)

chaos: all $(CHAOS_BIN)  ## faults in an elastic job for MINUTES (10); SEED=n repeats one run
	$(Q)$(PY) tests/chaos/chaos.py $(BUILD) --scenario all --seconds $$(($(MINUTES) * 60)) $(if $(SEED),--seed $(SEED))

chaos-throttle: all $(CHAOS_BIN)  ## four ranks with half a processor for MINUTES (10): no rank may be given up
	$(Q)$(PY) tests/chaos/chaos.py $(BUILD) --scenario quota --seconds $$(($(MINUTES) * 60)) $(if $(SEED),--seed $(SEED))

.PHONY: chaos chaos-throttle

# SPDX-License-Identifier: Apache-2.0
# The C examples, and the demo. Included by the Makefile.

EXAMPLES := $(BUILD)/examples/digits $(BUILD)/examples/elastic $(BUILD)/examples/split

examples: $(EXAMPLES)

# Built as a user's program is: with the public header, the shared library and libm.
$(BUILD)/examples/%: $(BUILD)/examples/%.o $(LIBHVD) $(LIBHVD).0
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $< $(LDFLAGS) -L$(BUILD) -lhvd -lm -Wl,-rpath,'$$ORIGIN/..'

# A second make, because make runs pkg-config when it starts, and deps.sh has installed nothing yet then.
demo:  ## installs what is missing, builds, trains: 4 ranks, 1 process, ranks that are killed and added
	$(Q)tests/deps.sh build demo
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) lib programs
	$(Q)$(PY) examples/demo.py $(BUILD)

.PHONY: demo

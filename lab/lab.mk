# SPDX-License-Identifier: MIT
# Models of cards, and what is measured on them: programs and targets. A part of the Makefile.

.PHONY: cards bench bench-commit bench-trim bench-blocklayer check-bench-commit

# recorder and replayer of the benchmark of commits
REPLAY_SRC := $(filter-out lab/bench/commit/recorder.c,$(sort $(wildcard lab/bench/commit/*.c)))
BENCH_BIN := $(B)/tests/recorder $(B)/tests/replay
BENCH_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard lab/bench/commit/*.c))
LINKED   += $(BENCH_BIN)
OBJECTS  += $(BENCH_OBJ)
$(BENCH_OBJ): lab/lab.mk
$(B)/tests/recorder: $(B)/obj/lab/bench/commit/recorder.o
$(B)/tests/replay: $(REPLAY_SRC:%.c=$(B)/obj/%.o) $(B)/obj/tests/trace_read.o
$(B)/tests/replay: LIBS := -lm

bench: DEPS += fuse-overlayfs
bench: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) lab/bench/commit.sh
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) lab/bench/path.sh

# Recorded traces of real programs, priced on every card of the flash model for cowfs and for others: docs/bench-commit.
bench-commit: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) lab/bench/commit/bench.py $(B)/traces --out $(or $(BENCH_OUT),docs/bench-commit)

# A year with and without trims, on the same cards: docs/bench-commit/trim.md.
bench-trim: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) lab/bench/commit/trim.py $(B)/traces --out $(or $(BENCH_OUT),docs/bench-commit)

# Two of these traces through loop device, daemon and kernel, on simulated cards: docs/BENCHMARKS.md.
bench-blocklayer: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) unshare --mount --propagation private lab/bench/commit/blocklayer.py $(B)/traces

# One small trace, three cards, seconds; a power cut behind each write. Three weeks of bench-trim.
check-bench-commit: all
	@echo "check-bench-commit: a trace priced for cowfs and for others, power cuts, the same through the kernel (as root)"
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) lab/bench/commit/bench.py --short
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) lab/bench/commit/trim.py --short
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) timeout -k 10 120 unshare --mount --propagation private lab/bench/commit/blocklayer.py --short

# Published cards as the daemon reads them: made again after a change of lab/sim/profiles.json, and of measured/.
cards: $(B)/tests/mkcards
	$(Q)$< >lab/sim/cards.conf.new && mv lab/sim/cards.conf.new lab/sim/cards.conf

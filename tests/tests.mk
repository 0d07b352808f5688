# SPDX-License-Identifier: MIT
# What tests cowfs: programs, checks, fuzzing, coverage, measurements. A part of the Makefile.

UNIT_SRC := $(sort $(wildcard tests/unit/*_test.c))
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(B)/tests/%)
CRASH_SRC := $(sort $(wildcard tests/crash/*.c))
SHIM_SRC := $(addprefix tests/tools/,powercut.c eioshim.c goneshim.c norandom.c nocustomio.c badimage.c nopages.c hostile.c liar.c clock.c swapnames.c)
SHIM     := $(SHIM_SRC:tests/tools/%.c=$(B)/tests/%.so)
TOOL_SRC := $(filter-out $(SHIM_SRC),$(sort $(wildcard tests/tools/*.c)))
TOOL_BIN := $(TOOL_SRC:tests/tools/%.c=$(B)/tests/%)
FUZZ_SRC := $(filter-out $(addprefix tests/fuzz/,main.c image.c disk.c),$(sort $(wildcard tests/fuzz/*.c)))
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/tests/fuzz_%)
# the same with libFuzzer's main: see fuzz
LIBFUZZER := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/tests/libfuzzer_%)
TEST_BIN := $(UNIT_BIN) $(TOOL_BIN) $(FUZZ_BIN) $(B)/tests/crash
TEST_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(filter-out $(SHIM_SRC),$(wildcard tests/*.c $(patsubst %,tests/%/*.c,unit crash tools fuzz golden))))
LINKED   += $(TEST_BIN)
OBJECTS  += $(TEST_OBJ)
# the same for every program of the tests
TEST_CFLAGS = $(if $(filter tests/% lab/bench/%,$<),-Itests -Wno-unused-parameter) \
	$(if $(filter tests/unit/flash_profile_test.c,$<),-DCARDS='"$(CURDIR)/lab/sim/cards.conf"') \
	$(if $(filter tests/unit/golden_test.c,$<),-DGOLDEN_DIR='"$(CURDIR)/tests/golden"')

# of all generators: another one with each commit, and with each night
COWFS_SEED := $(or $(COWFS_SEED),$(if $(filter check-night,$(MAKECMDGOALS)),$(shell date +%Y%m%d),$(shell tests/seed.sh)))
export COWFS_SEED

.PHONY: demo ready check check-night check-release check-cross check-unit check-unit-san crash check-crash check-mutants check-model check-model-short check-crash-short check-fuzz check-fuzz-san fuzz fuzz-run fuzz-all check-oss-fuzz fuzz-programs \
	fuzz-all-run golden check-bats check-kills kills power check-report check-fleet-tools check-layouts check-xfstests check-pjdfstest \
	check-packaging check-demo check-replay check-replay-short check-journal check-journal-short check-held check-tsan check-soak soak check-walk walk coverage coverage-report called check-docs check-blunt check-vm check-vm-life \
	check-vm-short check-deb check-dist check-debs image run-image check-fleet bench-boot lint lint-gcc lint-form lint-objects format

# ---- programs: the rules of the Makefile compile and link them ----

$(TEST_OBJ): tests/tests.mk
$(UNIT_BIN): $(B)/tests/%: $(B)/obj/tests/unit/%.o $(B)/obj/tests/unit/test.o
$(UNIT_BIN): LIBS := -lcmocka -lm
$(TOOL_BIN): $(B)/tests/%: $(B)/obj/tests/tools/%.o
$(FUZZ_BIN): $(B)/tests/fuzz_%: $(B)/obj/tests/fuzz/%.o $(B)/obj/tests/fuzz/main.o
$(LIBFUZZER): $(B)/tests/libfuzzer_%: $(B)/obj/tests/fuzz/%.o
$(LIBFUZZER): LIBS := $(or $(LIB_FUZZING_ENGINE),-fsanitize=fuzzer)
$(FUZZ_BIN) $(LIBFUZZER): $(addprefix $(B)/obj/tests/fuzz/,image.o disk.o)
# file systems that targets change, beside the programs
$(FUZZ_BIN) $(LIBFUZZER): | $(B)/tests/images
$(B)/tests/images: tests/fuzz/images.sh
	$(call say,IMAGES,$@)
	$(Q)$< $@
$(B)/tests/crash: $(CRASH_SRC:%.c=$(B)/obj/%.o)
$(addprefix $(B)/tests/,trace_test fuzz_flash libfuzzer_flash): $(B)/obj/tests/trace_read.o
$(B)/tests/golden_test $(B)/tests/mkgolden: $(B)/obj/tests/golden/golden.o
# programs that tell stories of a toy card (tests/toy.h)
WEAR := $(addprefix $(B)/tests/,wear_test wear_schedule_test wear_years_test)
TOY := $(addprefix $(B)/tests/,golden_test mkgolden alloc_test log_away_test log_fault_test log_foreign_test log_forged_test commit_fault_test \
	commit_large_test) $(WEAR) $(FUZZ_BIN) $(LIBFUZZER)
$(TOY): $(B)/obj/tests/toy.o
# $(call wrap,FUNCTIONS): the program has these of its own
wrap = $(addprefix -Wl$(comma)--wrap=,$1)
$(B)/tests/mkgolden $(B)/tests/offlinecard: $(B)/obj/tests/golden/still.o
$(B)/tests/mkgolden $(B)/tests/offlinecard: LIBS := $(call wrap,getrandom time __time64 clock_gettime __clock_gettime64)
$(B)/tests/crash: LIBS := $(call wrap,fsmap_run fsmap_log_sequence)
$(B)/tests/rulecost: LIBS := $(call wrap,ram_store_open ram_store_file ram_store_map_file ram_store_new_id ram_store_remove)
# the allocator of cowfs's own code, not of the libraries
$(B)/tests/alloc_test: LIBS += $(call wrap,malloc calloc realloc aligned_alloc posix_memalign strdup)
$(WEAR): LIBS += $(call wrap,time __time64)
$(B)/tests/client_test: LIBS += $(call wrap,poll clock_gettime __clock_gettime64)
$(B)/tests/follow_test: $(B)/obj/cowfs/cli/status_follow.o
$(B)/tests/follow_test: LIBS += $(call wrap,poll clock_gettime __clock_gettime64 client_volumes client_status_file leftover_volumes)
$(B)/tests/powercut_test: | $(SHIM)

# Preloaded into other programs: no sanitizer, no library of ours. pwrite and pwrite64, open and open64 are two symbols, and
# both are replaced; with 64-bit offsets by default (armhf of Debian 13) the first would be a name of the second.
$(B)/tests/hostile.so $(B)/tests/liar.so: cowfs/base/broker.h cowfs/daemon/link.h cowfs/card/find.h
$(B)/tests/hostile.so: SHIM_MORE := cowfs/base/broker.c cowfs/base/passfd.c
$(B)/tests/hostile.so: cowfs/base/broker.c cowfs/base/passfd.c
$(SHIM): $(B)/tests/%.so: tests/tools/%.c Makefile tests/tests.mk
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(call compile,-std=gnu17 $(WARN) -Wno-unused-parameter -D_GNU_SOURCE -U_FILE_OFFSET_BITS -U_TIME_BITS -Icowfs -O2 -g -fPIC -shared -pthread -o $@ $< $(SHIM_MORE) -ldl)

# ---- tests: they install nothing, `make deps` does ----

ready:
	$(Q)tests/ready.sh $(DEPS)

# Prometheus, promtool (in Debian 12 a part of it) and node_exporter: unpacked, not installed, because their packages start servers.
PROMETHEUS := build/prometheus/usr/bin/promtool
deps: $(PROMETHEUS)
$(PROMETHEUS):
	@echo "deps: unpacking prometheus and prometheus-node-exporter"
	$(Q)rm -rf build/prometheus.new && mkdir -p build/prometheus.new && cd build/prometheus.new && \
		get() { apt-get -qq download prometheus prometheus-node-exporter $$(apt-cache pkgnames promtool); } && \
		{ get 2>/dev/null || { apt-get -qq update && get; }; } && \
		for p in *.deb; do dpkg-deb --fsys-tarfile $$p | tar -x ./usr/bin || exit 1; done && rm -rf *.deb ../prometheus && \
		mv ../prometheus.new ../prometheus

# Three circles. COWFS_TURN: of tests that are made for several file systems, one is made for each commit; of long loops a quarter.
# Behind --: what runs beside them; what serves volumes of its own comes last there.
CHECKS := all check-unit check-bats check-demo
CHECKS_BESIDE := check-fuzz lint-gcc check-walk
CHECKS_BESIDE_TOO := check-crash-short check-journal-short check-blunt check-vm-life
NIGHT := all check-unit check-bats check-blunt check-kills check-layouts check-bench-commit
NIGHT_BESIDE := lint check-model-short check-vm-short check-replay-short check-journal check-held check-crash check-mutants
NIGHT_BESIDE_TOO := check-fuzz-san check-tsan check-soak check-packaging walk
RELEASE := check-unit-san check-model check-replay kills power check-report check-site check-fleet check-fleet-tools check-deb check-dist check-debs \
	coverage called soak fuzz-all check-pjdfstest check-xfstests bench-commit bench-trim bench-blocklayer check-vm

check: ready
	$(Q)COWFS_TURN=$${COWFS_TURN-$(if $(filter all,$(COWFS_FS)),,$(shell $(GIT) rev-parse HEAD 2>/dev/null || echo tarball))} \
		exec tests/check.sh "$(MAKE)" $(CHECKS) -- $(CHECKS_BESIDE) -- $(CHECKS_BESIDE_TOO)

check-night: ready
	$(Q)COWFS_CHECK_SECONDS=$${COWFS_CHECK_SECONDS:-28800} \
		exec tests/check.sh "$(MAKE)" $(NIGHT) -- $(NIGHT_BESIDE) -- $(NIGHT_BESIDE_TOO)

# One after another, in a day or two; goes on where it was interrupted. Other architectures need a chroot.
check-release:
	$(Q)mkdir -p build && BENCH_OUT=$(CURDIR)/build/bench-commit tests/check-all.sh "$(MAKE)" build/check-release $(RELEASE)

check-unit-san:
	$(Q)for san in address,undefined thread; do $(MAKE) --no-print-directory SAN=$$san check-unit || exit 1; done

check-unit: $(UNIT_BIN)
	@echo "check-unit: $(words $^) programs, COWFS_SEED=$(COWFS_SEED)"
	$(Q)tests/run-unit.sh $^

# Another architecture, under qemu-user (make cross-deps installs it): the unit tests except those of tests/cross.txt, golden
# images read and written, the fuzz corpora, power cuts, cards that go there and back (NATIVE: a build of this machine). Not part
# of check.
CROSS_CPU = $(shell dpkg-architecture -f -a $(CROSS) -qDEB_HOST_GNU_CPU 2>/dev/null)
QEMU ?= $(or $(firstword $(wildcard /usr/bin/qemu-$(CROSS_CPU)-static /usr/bin/qemu-$(CROSS_CPU))),$(error no qemu-$(CROSS_CPU): make cross-deps))
CROSS_IMAGES ?= 50000
NATIVE ?= build
check-cross: cross
	$(Q)B=$(B) tests/cross.sh "$(QEMU)" $(CROSS_IMAGES) $(NATIVE)

check-crash-short: $(B)/tests/crash
	@echo "check-crash-short: simulated card, power cuts, named attacks; COWFS_SEED=$(COWFS_SEED)"
	$(Q)$< --images 3000 --seed $(COWFS_SEED) && $< --no-attacks --images 3000 --thin 8 --seed $(COWFS_SEED)

# With --thin the histories are others: they go on from images that the full runs seldom keep.
check-crash: $(B)/tests/crash
	@echo "check-crash: COWFS_SEED=$(COWFS_SEED)"
	$(Q)$< --images 1000000 --forgeries 100000 --seed $(COWFS_SEED) && \
		for form in --away "--away --thin 5" --ext4 "--lag 1 --thin 5" "--thin 2" "--thin 3" "--thin 5" "--thin 8" "--thin 12"; do \
			echo "check-crash: $$form" && $< --no-attacks $$form --images 200000 --seed $(COWFS_SEED) || exit 1; \
		done

# The protocol in Promela, every interleaving of a few operations: docs/model.
check-model:
	$(Q)docs/model/run.sh all
check-model-short:
	$(Q)docs/model/run.sh short

# Each rule switched off in a copy of the source: the attack that aims at it must fail. Five minutes or more; not part of check.
check-mutants:
	$(Q)tests/crash/mutants.sh
	$(Q)tests/crash/invariants.sh
	$(Q)[ -z "$(RANDOM_MUTANTS)" ] || unshare --mount --propagation private tests/crash/random-mutants.py --count $(RANDOM_MUTANTS)

# What a failure of check-crash named: make crash REPLAY=w:7:3:12:5
crash: $(B)/tests/crash
	@test -n "$(REPLAY)" || { echo "make crash REPLAY=ID, as a failure tells it" >&2; exit 2; }
	$(Q)$< --replay "$(REPLAY)"

# Writes tests/golden anew: only before the first release of a format version, see CONTRIBUTING.md.
golden: $(B)/tests/mkgolden
	$(Q)$< tests/golden && { [ ! -e .git ] || $(GIT) --no-pager diff --stat tests/golden; }

# Mutations for each target: what fits into half a minute.
FUZZ_RUNS ?= answer=5000 btrfs=2000 codec=30000 conf=50000 costs=20000 delta=20000 extfs=3000 flash=4000 options=100000 request=100000 ring=3000 super=6000 xfs=2000 clients=2000 link=1000

check-fuzz-san:
	$(Q)$(MAKE) --no-print-directory SAN=address,undefined O=1 check-fuzz

check-fuzz: $(FUZZ_BIN)
	@echo "check-fuzz: corpus and mutations"
	$(Q)for t in $(FUZZ_RUNS); do $(B)/tests/fuzz_$${t%=*} tests/fuzz/corpus/$${t%=*} $${t#*=} || exit 1; done

# Branches of log/ and commit/ as gcc counts them (docs/TESTING.md, "Coverage"). A part that fails fails the whole, but
# only when all figures have been shown. Only what is counted is built with --coverage.
COVERED := cowfs/log/ cowfs/commit/
COVERAGE_IMAGES ?= 20000
COVERAGE_MAKE = $(MAKE) --no-print-directory COV=1
coverage: DEPS += gcovr
coverage: deps
	@echo "coverage: branches of $(COVERED) taken by unit tests, $(COVERAGE_IMAGES) images of the crash driver, fuzz corpora$(if $(COWFS_COVERAGE_BATS),$(comma) bats tests)"
	$(Q)$(COVERAGE_MAKE) all
	$(Q)find build-cov -name '*.gcda' -delete
	$(Q)failed=; COWFS_UNIT_SECONDS=1200 $(COVERAGE_MAKE) check-unit || failed=1; \
	build-cov/tests/crash --images $(COVERAGE_IMAGES) --thin 64 || failed=1; \
	$(COVERAGE_MAKE) FUZZ_RUNS='$(foreach t,$(FUZZ_RUNS),$(firstword $(subst =, ,$(t)))=100)' check-fuzz || failed=1; \
	[ -z "$(COWFS_COVERAGE_BATS)" ] || $(COVERAGE_MAKE) check-bats || failed=1; \
	$(COVERAGE_MAKE) coverage-report || failed=1; \
	[ -z "$$failed" ] || { echo "coverage: something failed, see above" >&2; exit 1; }
# what the last run of coverage has counted, each folder with its total
coverage-report:
	$(Q)for d in $(COVERED); do \
		gcovr -r . --object-directory build-cov --filter "$$d" --exclude-unreachable-branches --branches build-cov || exit 1; \
	done

# Functions that no program calls in the unit tests, the crash driver, the corpora and bats. They count in killed daemons, too: each
# program marks them in a file that it maps (tests/called). Guests are not counted.
called: deps
	$(Q)mkdir -p build-called/marks && chmod 777 build-called/marks && rm -f build-called/marks/*
	$(Q)$(CC) -O2 -Wall -Werror -DCALLED_DIR='"$(CURDIR)/build-called/marks"' -c tests/called/called.c -o build-called/called.o
	$(Q)$(MAKE) --no-print-directory B=build-called CFLAGS="-O1 -g -finstrument-functions" LDFLAGS=$(CURDIR)/build-called/called.o all
	$(Q)failed=; $(MAKE) --no-print-directory B=build-called check-unit || failed=1; \
	build-called/tests/crash --images 3000 --thin 64 || failed=1; \
	$(MAKE) --no-print-directory B=build-called FUZZ_RUNS='$(foreach t,$(FUZZ_RUNS),$(firstword $(subst =, ,$(t)))=100)' check-fuzz || failed=1; \
	$(MAKE) --no-print-directory B=build-called check-bats || failed=1; \
	tests/called/called.py build-called build-called/marks; \
	[ -z "$$failed" ] || { echo "called: something failed, see above" >&2; exit 1; }

# Needs clang's runtime. What it finds lies in build-...-fuzz/TARGET; a crash goes to tests/fuzz/corpus/TARGET with its fix.
fuzz fuzz-all check-oss-fuzz: DEPS += libclang-rt-dev
fuzz: deps
	@test -n "$(TARGET)" || { echo "make fuzz TARGET=one of: $(FUZZ_SRC:tests/fuzz/%.c=%) [SECONDS=60]" >&2; exit 2; }
	$(Q)$(MAKE) --no-print-directory CC=clang SAN=address,undefined FUZZ=1 fuzz-run
fuzz-run: $(B)/tests/libfuzzer_$(TARGET)
	@mkdir -p $(B)/$(TARGET)
	$(Q)$< $(addprefix -dict=,$(wildcard tests/fuzz/$(TARGET).dict)) -max_total_time=$(or $(SECONDS),60) -timeout=20 -max_len=4096 -print_final_stats=1 \
		-artifact_prefix=$(B)/$(TARGET)- $(B)/$(TARGET) tests/fuzz/corpus/$(TARGET)

# Every target until it has had MINUTES of CPU time, twice that for ring and extfs; goes on where it was stopped, and prints a
# table of figures (tests/fuzz/all.py).
fuzz-all: check-oss-fuzz
	$(Q)$(MAKE) --no-print-directory CC=clang SAN=address,undefined FUZZ=1 fuzz-all-run
fuzz-programs: $(LIBFUZZER)
fuzz-all-run: fuzz-programs
	$(Q)nice -n 19 tests/fuzz/all.py $(B) tests/fuzz/corpus $(B)/all $(or $(MINUTES),30)

# The project for OSS-Fuzz, without its container: every target runs from OUT alone.
OSS_FUZZ := build-oss-fuzz
OSS_CFLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=address,fuzzer-no-link
check-oss-fuzz: deps
	$(Q)rm -rf $(OSS_FUZZ)/out && mkdir -p $(OSS_FUZZ)/out $(OSS_FUZZ)/src && ln -sfn $(CURDIR) $(OSS_FUZZ)/src/cowfs
	$(Q)env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL SRC=$(CURDIR)/$(OSS_FUZZ)/src WORK=$(CURDIR)/$(OSS_FUZZ) \
		OUT=$(CURDIR)/$(OSS_FUZZ)/out CC=clang CFLAGS="$(OSS_CFLAGS)" LIB_FUZZING_ENGINE=-fsanitize=fuzzer \
		nice tests/fuzz/oss-fuzz/build.sh
	$(Q)cd $(OSS_FUZZ)/out && for t in $(FUZZ_SRC:tests/fuzz/%.c=%); do \
		mkdir $$t.corpus && python3 -m zipfile -e $${t}_seed_corpus.zip $$t.corpus && \
		env -i ./$$t -dict=$$t.dict -runs=0 $$t.corpus >$$t.log 2>&1 || { cat $$t.log; exit 1; }; \
		echo "  ok    $$t of OSS-Fuzz"; done

check-bats: all
	@echo "check-bats: the programs on loop devices (as root), COWFS_SEED=$(COWFS_SEED)"
	$(Q)exec env COWFS_BUILD=$(CURDIR)/$(B) tests/run-bats.sh $(or $(BATS),$(wildcard tests/bats/*.bats))

# The tests of cuts, errors, kills, pulled cards and attacks without what cuts, fails, kills, pulls and attacks: each must fail.
check-blunt: all $(B)/tests/blunt.so
	@echo "check-blunt: tests without their instruments (as root)"
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/blunt.sh
$(B)/tests/blunt.so: tests/tests.mk
	$(call say,LD,$@)
	$(Q)$(CC) -shared -nostdlib -x c -o $@ /dev/null

check-kills: all
	@echo "check-kills: $(or $(COUNT),100) kills of all processes of a daemon in the middle of commits, twice (as root)"
	$(Q)COUNT=$(or $(COUNT),100) COWFS_BUILD=$(CURDIR)/$(B) unshare --mount --propagation private \
		bats --print-output-on-failure --timing tests/bats/kills.bats
	@echo "check-kills: $(or $(COUNT),60) kills of each other command, and of workers before a power cut (as root)"
	$(Q)COUNT=$(or $(COUNT),60) COWFS_BUILD=$(CURDIR)/$(B) unshare --mount --propagation private \
		bats --print-output-on-failure --timing tests/bats/kills_elsewhere.bats tests/bats/takeover.bats

# Workers of a mounted volume, each replaced by another one.
kills: all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) KILLS=$(or $(KILLS),1000) tests/kills.sh

# Power that ends 5 s after a signal.
power: all
	$(Q)COWFS_POWER_CUTS=$(or $(CUTS),100) BATS_TEST_TIMEOUT=7200 COWFS_BUILD=$(CURDIR)/$(B) unshare --mount --propagation private \
		bats --filter 'power ends' tests/bats/commit_time.bats

# A year of three simulated devices in a real Prometheus: docs/FLEET.md.
check-fleet: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) unshare --mount --propagation private tests/fleet/year.py $(dir $(PROMETHEUS))

# The page of cowctl wear --html in a browser: light, dark, phone, desktop, keyboard, contrast. Not part of check: chromium is large, and
# axe-core comes from npm (both are for this test only). The screenshots are for looking at.
AXE := axe-core@4.14.1
check-report: DEPS += chromium fonts-dejavu-core $(shell command -v npm >/dev/null || echo npm)
check-report: deps
	$(Q)$(MAKE) --no-print-directory $(B)/cowctl $(B)/libexec/wear
	$(Q)[ -s $(B)/report/axe.js ] || { echo "check-report: fetching $(AXE) with npm"; mkdir -p $(B)/report && cd $(B)/report && \
		npm pack --silent $(AXE) >/dev/null && tar -xOf axe-core-*.tgz package/axe.min.js >axe.new && mv axe.new axe.js; }
	$(Q)tests/report/check.py $(B)/cowctl $(B)/report/axe.js $(B)/report $(CASES)

# The documents as a web site in build/site, without the network; check-site makes it twice and looks at it in chromium. Not part of check,
# because mkdocs and chromium are for these only.
SITE := build/site
.PHONY: site check-site
site check-site: DEPS += mkdocs
check-site: DEPS += chromium fonts-dejavu-core
site: deps
	$(Q)docs/site/build.py $(SITE)
	@echo "site: $(SITE)/index.html; its search needs a server: python3 -m http.server -d $(SITE)"
check-site: deps
	$(Q)docs/site/build.py $(SITE) && docs/site/build.py $(SITE)-again && diff -r $(SITE) $(SITE)-again
	$(Q)docs/site/check.py $(SITE) $(SITE)-pictures

# docs/pictures. The screenshot is made by check-report.
.PHONY: pictures
pictures: DEPS += graphviz termtosvg
pictures: deps
	$(Q)$(MAKE) --no-print-directory programs
	$(Q)dot -Tsvg docs/pictures/how.dot -o docs/pictures/how.svg
	$(Q)PATH="$(CURDIR)/$(B):$$PATH" script -qec "termtosvg record $(B)/tour.cast -c docs/pictures/tour.sh -g 100x28" /dev/null >/dev/null
	$(Q)termtosvg render $(B)/tour.cast docs/pictures/tour.svg -m 60 -M 3000 -D 5000 -t window_frame >/dev/null

# Real RAUC, SWUpdate and Mender of this Debian ship an update, with boots of a root in place of reboots. Not part of check: these
# packages are for this test only.
check-fleet-tools: DEPS += rauc rauc-service swupdate mender-client mender-artifact dbus openssl cpio
check-fleet-tools: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) COWFS_ON_CRASH=stop unshare --mount --propagation private \
		bats --print-output-on-failure --timing tests/fleet/tools.bats

# File systems of many mkfs options, killed in a commit.
check-layouts: all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/layouts.sh $(if $(LAYOUTS),'$(LAYOUTS)')

# Test suites of other projects: each script clones and builds its own, unless it is told where it is.
check-xfstests check-pjdfstest: DEPS += git automake autoconf
check-xfstests: DEPS += acl attr bc gawk quota gettext libtool-bin libacl1-dev libattr1-dev libaio-dev libgdbm-dev uuid-dev xfslibs-dev
check-pjdfstest: DEPS += perl
check-xfstests check-pjdfstest: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/suites/$(@:check-%=%).sh

# The demo's story without apt: a card changed, committed, and its power cut.
check-demo: all
	@echo "check-demo: the demo without packages (as root)"
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/demo.sh --quick

# The daemon under ThreadSanitizer and with its lock order checked: a build of its own, of what is needed.
check-tsan:
	@echo "check-tsan: the daemon under ThreadSanitizer (as root)"
	$(Q)$(MAKE) --no-print-directory SAN=thread O=1 build-thread/cowfs build-thread/cowctl build-thread/tests/eioshim.so build-thread/tests/goneshim.so build-thread/tests/clock.so \
		build-thread/tests/jsonat
	$(Q)COWFS_BUILD=$(CURDIR)/build-thread tests/tsan.sh

# Virtual machines. The short form is one life of each kind of guest; the guests are kept in build/vm.
check-vm-short: all
	@echo "check-vm-short: boot, commit, reboot, verify in virtual machines; the small image is made (as root)"
	$(Q)$(MAKE) --no-print-directory image IMAGE=busybox
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/vm/matrix --short $(CASES)

# of these the one that everything goes through
check-vm-life: all
	@echo "check-vm-life: boot, commit, reboot, verify in a virtual machine (as root)"
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/vm/matrix --short $(or $(CASES),cycle:busybox)

check-vm: all
	$(Q)$(MAKE) --no-print-directory image
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/vm/image.py $(B)/cowfs-busybox.img $(B)/cowfs-squashfs.img
	$(Q)tests/vm/first_boot.py $(B)/cowfs-debian12-pc.img
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/vm/matrix $(CASES)

# The packages of make deb. Not part of check: what it needs is large. VM= leaves out the guest.
VM ?= package:debian$(shell . /etc/os-release && echo $$VERSION_ID)-plain
check-deb: DEPS += debhelper lintian piuparts
check-deb: deps
	$(Q)$(MAKE) --no-print-directory deb
	$(Q)tests/deb.sh
	$(Q)$(if $(VM),$(MAKE) --no-print-directory all && COWFS_BUILD=$(CURDIR)/$(B) tests/vm/matrix $(VM))

# The tarball in a clean Debian of each suite. STEPS="deps deb check": all tests there, half an hour each.
check-dist: dist
	$(Q)$(if $(BATS),BATS="$(BATS)") STEPS="$(STEPS)" tests/dist.sh $(DIST) $(or $(SUITES),bookworm trixie)

# riscv64 came with Debian 13
DEBS ?= $(addprefix bookworm:,amd64 arm64 armhf) $(addprefix trixie:,amd64 arm64 armhf riscv64)
check-debs: DEPS += piuparts qemu-user-static arch-test
check-debs: deps dist
	$(Q)tests/debs.sh $(DIST) build/debs $(DEBS)

IMAGES := debian12-pc busybox squashfs
image: programs
	$(Q)for i in $(or $(IMAGE),$(IMAGES)); do COWFS_BUILD=$(CURDIR)/$(B) image/build $$i $(B)/cowfs-$$i.img || exit 1; done

run-image:
	$(Q)image/run $(B)/cowfs-$(or $(IMAGE),debian12-pc).img

soak: all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) COWFS_SOAK_SECONDS=$${COWFS_SOAK_SECONDS:-1800} tests/soak.sh

check-soak:
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) COWFS_SOAK_SECONDS=$${COWFS_SOAK_SECONDS:-60} tests/soak.sh

# A fresh seed each time, which is printed.
check-walk walk: all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) unshare --mount --propagation private tests/walk/walk.py \
		--seconds $${COWFS_WALK_SECONDS:-$(if $(filter walk,$@),3600,60)}

# Power cuts on real ext4: all that reaches the card is recorded by QEMU, and replayed to so many points.
check-replay-short: all
	@echo "check-replay-short: power cuts from a recording by QEMU (as root)"
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/replay/replay.sh --points 40 --rounds 8
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/replay/xfsfree.py 12 1 1

# Journals of the kernel at random moments, replayed by cowfs and by e2fsck.
check-journal-short: all
	@echo "check-journal-short: journals of a loaded ext3 and ext4 (as root)"
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/replay/journal.py --short --seconds 2

check-journal: all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/replay/journal.py --seconds 20

# Commits by pressure beside a held generation, cut every few seconds.
check-held: all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/replay/held.py --seconds 60

check-replay: all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/replay/replay.sh --points 1000 --log 2
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/replay/replay.sh --points 1000 --log 8
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/replay/xfsfree.py 400

# No network, no foreign build system: docs/PACKAGING.md says what was checked with those.
PACKAGING := $(filter-out %.md %.service,$(wildcard packaging/openrc/* packaging/runit/* packaging/arch/* packaging/alpine/* packaging/fleet/* initramfs/mkinitcpio/*)) \
	packaging/buildroot/board/cowfs/post-image.sh packaging/debs packaging/sign
check-packaging: all
	@echo "check-packaging: hooks and scripts of other distributions (as root)"
	$(Q)shellcheck -e SC1091 $(PACKAGING)
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) unshare --mount --propagation private bats tests/bats/packaging.bats

check-docs: programs
	@echo "check-docs: man pages, options in help and manual"
	$(Q)for m in $(MAN); do mandoc -T lint -W warning $$m || exit 1; done
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/help.sh
	$(Q)for f in debian/changelog packaging/arch/PKGBUILD packaging/alpine/APKBUILD packaging/fedora/cowfs.spec packaging/buildroot/package/cowfs/cowfs.mk packaging/meta-cowfs/recipes-core/cowfs/cowfs_git.bb README.md; do \
		grep -qE '(^cowfs \(|^pkgver=|^Version: +|^COWFS_VERSION = |^PV = "|version )$(subst .,\.,$(VERSION))\b' $$f || \
			{ echo "$$f: the version is not $(VERSION), which the Makefile has" >&2; exit 1; }; done
	$(Q)kernel=$$(sed -n 's/^#define KERNEL_MIN_M.*OR //p' cowfs/base/kernel.h | paste -sd.) && \
		grep -q "^min_kernel=$$kernel " systemd/setup-checks || \
		{ echo "systemd/setup-checks: min_kernel is not $$kernel, the oldest that cowfs/base/kernel.h names" >&2; exit 1; }
	$(Q)for f in docs/*.md; do grep -qF "\"$$f\"" docs/site/build.py || { echo "docs/site/build.py: $$f is on no page" >&2; exit 1; }; done
	$(Q)for t in $(filter-out all,$(CHECKS) $(CHECKS_BESIDE) $(CHECKS_BESIDE_TOO) $(NIGHT) $(NIGHT_BESIDE) $(NIGHT_BESIDE_TOO) $(RELEASE)); do grep -q "\`$$t\`" docs/TESTING.md || \
		{ echo "docs/TESTING.md: the table of circles lacks $$t" >&2; exit 1; }; done

# what it runs, and nothing else; exec, so that a signal for make reaches it
demo: ready
	@echo "demo: building cowfs, cowctl, and the shim that cuts the power"
	$(Q)$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc)) $(PROGS) $(B)/tests/powercut.so
	$(Q)exec env COWFS_BUILD=$(CURDIR)/$(B) tests/demo.sh

# pairs of boots in virtual machines
bench-boot: all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/vm/bench-boot $(if $(CLOCK),--clock) $(or $(PAIRS),5) $(GUEST)

# The layout of C files, with one version of clang-format, because each lays out a little differently. Lines longer than 100
# columns: only tables in comments and texts for users, which stay in one piece to be found.
CLANG_FORMAT := clang-format-14
FORMATTED := $(sort $(wildcard cowfs/*/*.[ch] lab/*/*.[ch] tools/*/*.[ch] tests/*.[ch] tests/*/*.[ch] lab/bench/commit/*.[ch]))
format:
	$(Q)$(CLANG_FORMAT) -i $(FORMATTED)

INITRAMFS = initramfs/cowfs.sh initramfs/grow-root $(sort $(filter-out %.service %.conf,$(wildcard initramfs/*/*)))
SHELL_SRC = $(sort $(INITRAMFS) tools/wear/cowctl-wear-outlook tools/wear/cowctl-wear-prometheus $(wildcard lab/bench/*.sh lab/bench/*.bash tests/*.sh tests/*.bash tests/*/*.sh tests/*/*.bash $(addprefix systemd/,$(HOOKS) setup setup-checks setup-image in-tree check-initramfs dpkg-hook root-device which-device cowfs-generator cowfs.shutdown cowfs.sleep 90-cowfs.motd kernel-hook grub.cfg grub-install) \
	    $(PACKAGING) cowfs/*/*.bash lab/*/*.bash image/*.bash tests/vm/cases/*.sh tests/vm/guest/usr/lib/cowfs-test/run) \
	    $(wildcard debian/cowfs.p* debian/tests/loop-card debian/tests/root) image/build image/run image/first-boot/usr/lib/cowfs-image/first-boot tests/vm/run tests/vm/guests tests/vm/matrix tests/vm/autopkgtest tests/vm/bench-boot docs/pictures/tour.sh .ci/run)
# First what takes seconds: the form. Then what needs objects: what the compiler has said of those that there are, and clang, which makes
# them once more without optimization, because its warnings do not need it.
lint: lint-gcc
	$(Q)if command -v clang >/dev/null; then $(MAKE) --no-print-directory B=build/lint-clang CC=clang O=0 WERROR=1 lint-objects; \
	else echo "lint: no clang here: only gcc's warnings were looked at"; fi
lint-gcc: lint-form
	$(Q)$(MAKE) --no-print-directory lint-objects
	$(Q)cat $(addsuffix .said,$(basename $(COMPILED))) >$(B)/said && if [ -s $(B)/said ]; then \
		echo "lint: warnings:" >&2 && cat $(B)/said >&2; exit 1; fi
	$(Q)tests/includes.py $(B)/obj
	$(Q)$(MAKE) --no-print-directory check-docs
lint-form:
	$(Q)if command -v $(CLANG_FORMAT) >/dev/null; then printf '%s\n' $(FORMATTED) | xargs -P $(shell nproc) -n 50 $(CLANG_FORMAT) --dry-run --Werror; \
	else echo "lint: no $(CLANG_FORMAT) here: the layout of C files was not looked at"; fi
	$(Q)if [ -e .git ]; then $(GIT) ls-files -z; else find . -name 'build*' -prune -o -type f -printf '%P\0'; fi | \
		grep -zvE '^(tests/fuzz/corpus|tests/golden|tools/wear/wear/uPlot|docs/pictures/.*\.svg$$)' | xargs -0 codespell -L $(WORDS)
	$(Q)tests/paths.py
	$(Q)tests/asserts.py $(wildcard tests/bats/*.bats tests/bats/*.bash tests/fleet/*.bats)
# of what is installed, Python reads no module of the caller's environment or folder
	$(Q)! grep -rnIE '^#!.*python|python3"?,? +["$$-]' cowfs tools systemd initramfs | grep -vE '"?-I\>'
	$(Q)tests/measured.sh
	$(Q)tests/crash/mutants.sh --apply
	$(Q)tests/crash/invariants.sh --apply
	$(Q)shellcheck -e SC1091 $(wildcard $(SHELL_SRC))
# what codespell takes for a slip: man page requests, a completed prefix, variables, allocation groups
WORDS := nd,fo,tread,failer,ags,copyin,statu,aways
COMPILED = $(OBJECTS) $(RECOVER_OBJ) $(SHIM)
lint-objects: $(COMPILED)

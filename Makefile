# SPDX-License-Identifier: MIT
# cowfs: one Makefile, not recursive. `make help` tells the targets.
#   V=1 shows commands, SAN=address,undefined or SAN=thread builds with sanitizers,
#   CC=clang, O=2, DESTDIR= and prefix= as usual. Programs are installed without symbols, because they go into the initramfs;
#   STRIP= leaves these where they are.

VERSION := 0.1.0
prefix  ?= /usr
sbindir ?= $(prefix)/sbin
bindir  ?= $(prefix)/bin
mandir  ?= $(prefix)/share/man
docdir  ?= $(prefix)/share/doc/cowfs
unitdir ?= $(prefix)/lib/systemd/system
libdir  ?= $(prefix)/lib/cowfs
# where initramfs-tools and dracut look; packages and what is installed by hand have places of their own in the first
initramfsdir ?= $(if $(filter /usr,$(prefix)),/usr/share,/etc)/initramfs-tools
dracutdir ?= /usr/lib/dracut/modules.d/90cowfs
busyboxdir ?= $(prefix)/share/cowfs/busybox
bashdir ?= $(prefix)/share/bash-completion/completions
# where mount(8) looks for helpers: /sbin, which is /usr/sbin today. Where it is not: mountdir=/sbin
mountdir ?= $(if $(filter /usr,$(prefix)),$(sbindir),/sbin)
comma   := ,
B       := build$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(COV),-cov)$(if $(FUZZ),-fuzz)
Q       := $(if $(V),,@)

CC      ?= cc
STRIP   ?= strip
# a sanitizer's runtime and gcov make calls of their own: no filter of system calls in such builds (daemon/confine.c)
NO_SECCOMP ?= $(SAN)$(COV)$(FUZZ)
PKGS    := fuse3 ext2fs com_err blkid json-c inih libseccomp
O       ?= 2
CFLAGS  ?= -O$(O) -g
CFLAGS  += $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer) \
	   $(if $(FUZZ),-fsanitize=fuzzer-no-link)
LDFLAGS += $(if $(SAN),-fsanitize=$(SAN)) $(if $(COV),--coverage)
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	   -Wundef -Wwrite-strings -Wformat=2 -Wvla -Wimplicit-fallthrough $(if $(WERROR),-Werror)
# expanded when first used: the packages come from `make deps`
PKG_CFLAGS = $(eval PKG_CFLAGS := $$(shell pkg-config --cflags $(PKGS)))$(PKG_CFLAGS)
PKG_LIBS   = $(eval PKG_LIBS := $$(shell pkg-config --libs $(PKGS)))$(PKG_LIBS)
ALL_CFLAGS = -std=gnu17 $(WARN) -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=312 \
	     -DCOWFS_VERSION='"$(VERSION)"' -Icowfs -pthread $(PKG_CFLAGS) $(CFLAGS) \
	     $(if $(NO_SECCOMP),-DCOWFS_NO_SECCOMP) \
	     $(if $(COV),$(if $(filter $(COVERED:%=%%),$<),--coverage -O0)) \
	     $(if $(filter cowfs/wear/report.c,$<),-DREPORT_TEMPLATE='"$(abspath $(B)/report.html)"') \
	     $(if $(filter cowfs/flash/profile.c,$<),-DFLASH_PROFILES='"$(abspath cowfs/flash/profiles.json)"') \
	     $(if $(filter thread,$(SAN)),-include tests/lockcheck/lockcheck.h)
ALL_LIBS   = $(PKG_LIBS) -laio -pthread

PROG_SRC := cowfs/daemon/cowfs.c cowfs/cli/cowctl.c cowfs/attach/mount.c cowfs/attach/umount.c cowfs/sim/cardsim.c
LIB_SRC  := $(filter-out $(PROG_SRC),$(sort $(wildcard cowfs/*/*.c))) $(if $(filter thread,$(SAN)),tests/lockcheck/lockcheck.c)
LIB_OBJ  := $(LIB_SRC:%.c=$(B)/obj/%.o)
PROGS    := $(B)/cowfs $(B)/cowctl
HELPERS  := $(B)/mount.cowfs $(B)/umount.cowfs
# a tool for tests and measurements, of no use to a machine that cowfs protects
CARDSIM  := $(B)/cowfs-cardsim
UNIT_SRC := $(sort $(wildcard tests/unit/*_test.c))
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(B)/tests/%)
CRASH_SRC := $(sort $(wildcard tests/crash/*.c))
SHIM_SRC := tests/tools/powercut.c tests/tools/eioshim.c tests/tools/norandom.c tests/tools/badimage.c
FUZZ_SRC := $(filter-out tests/fuzz/main.c tests/fuzz/image.c,$(sort $(wildcard tests/fuzz/*.c)))
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/tests/fuzz_%)
TOOL_SRC := $(filter-out $(SHIM_SRC) tests/tools/mkgolden.c,$(sort $(wildcard tests/tools/*.c)))
TOOL_BIN := $(TOOL_SRC:tests/tools/%.c=$(B)/tests/%)
SHIM     := $(SHIM_SRC:tests/tools/%.c=$(B)/tests/%.so)
# recorder and replayer of the benchmark of commits
RECORDER := $(B)/tests/recorder
REPLAY_SRC := $(filter-out tests/bench/commit/recorder.c,$(sort $(wildcard tests/bench/commit/*.c)))
REPLAYER := $(B)/tests/replay
MAN      := $(sort $(wildcard docs/*.[1-8]))
UNITS    := $(sort $(wildcard systemd/*.service systemd/*.timer systemd/*.target systemd/*.mount))
# scripts that are installed, with the places that they name: FILE:PATH:MODE
SHIP = initramfs/cowfs.sh:$(libdir)/cowfs.sh:644 \
	initramfs/initramfs-tools/hook:$(initramfsdir)/hooks/cowfs:755 \
	initramfs/initramfs-tools/local-premount:$(initramfsdir)/scripts/local-premount/cowfs:755 \
	$(foreach f,module-setup.sh cowfs-root.sh cowfs-pre-mount.sh,initramfs/dracut/$f:$(dracutdir)/$f:755) \
	initramfs/dracut/cowfs-root.service:$(dracutdir)/cowfs-root.service:644 \
	$(foreach f,init rcS rcK mkinitramfs,initramfs/busybox/$f:$(busyboxdir)/$f:755) \
	$(foreach f,$(HOOKS),systemd/$f:$(libdir)/$f:755) \
	systemd/cowfs-generator:$(prefix)/lib/systemd/system-generators/cowfs-generator:755 \
	systemd/cowfs.shutdown:/usr/lib/systemd/system-shutdown/cowfs:755 \
	systemd/cowfs.sleep:/usr/lib/systemd/system-sleep/cowfs:755 \
	systemd/journald.conf:$(prefix)/lib/systemd/journald.conf.d/cowfs.conf:644 \
	systemd/61-cowfs.rules:$(prefix)/lib/udev/rules.d/61-cowfs.rules:644 \
	systemd/90-cowfs.motd:/etc/update-motd.d/90-cowfs:755 \
	systemd/dpkg.cfg:/etc/dpkg/dpkg.cfg.d/cowfs:644 \
	systemd/grub.cfg:/etc/default/grub.d/cowfs.cfg:644 \
	systemd/kernel-hook:/etc/kernel/postinst.d/x-cowfs:755 \
	systemd/kernel-hook:/etc/initramfs/post-update.d/cowfs:755
HOOKS := setup check-initramfs dpkg-hook grub-probe identity events root-options which-device
PLACES = s|:-/usr/lib/systemd/system}|:-$(unitdir)}|;s|/usr/sbin/\(cow[a-z]*\)|$(sbindir)/\1|g;s|/usr/lib/cowfs|$(libdir)|g;s|/usr/share/cowfs|$(prefix)/share/cowfs|g
INITRAMFS := initramfs/cowfs.sh $(sort $(filter-out %.service,$(wildcard initramfs/*/*)))
SHELL_SRC = $(sort $(INITRAMFS) $(wildcard tests/*.sh tests/*/*.sh tests/*/*.bash $(addprefix systemd/,$(HOOKS) cowfs-generator cowfs.shutdown cowfs.sleep 90-cowfs.motd kernel-hook grub.cfg) \
	    cowfs/*/*.bash image/*.bash tests/vm/cases/*.sh tests/vm/guest/usr/lib/cowfs-test/run) \
	    image/build image/run tests/vm/run tests/vm/guests tests/vm/matrix tests/vm/bench-boot .ci/run)

# One list for the whole project: what builds it, what tests it.
DEPS := build-essential pkg-config libfuse3-dev libext2fs-dev comerr-dev libblkid-dev libjson-c-dev libinih-dev libaio-dev libseccomp-dev \
	libcmocka-dev linux-libc-dev bats fio jq shellcheck mandoc e2fsprogs xfsprogs btrfs-progs dosfstools \
	util-linux mmdebstrap fdisk sqlite3 stress-ng python3 git ca-certificates \
	qemu-system-x86 qemu-system-common qemu-utils grub-common grub-pc-bin busybox-static cpio kmod f2fs-tools rsync
# the peers that the data path is measured against
BENCH_DEPS := fuse-overlayfs

.PHONY: help deps all demo check check-unit crash check-crash check-mutants check-crash-short check-fuzz fuzz fuzz-run fuzz-all fuzz-all-run golden check-bats check-kills check-report check-layouts check-layouts-short check-xfstests check-pjdfstest check-demo check-replay check-replay-short check-tsan check-soak soak coverage coverage-report check-docs check-vm check-vm-short image run-image bench bench-boot bench-commit check-bench-commit install \
	uninstall clean lint format
.DEFAULT_GOAL := help

help:
	@echo "cowfs $(VERSION)"
	@echo "  make deps       install what building and testing need (Debian 12 or 13, as root)"
	@echo "  make all        build cowfs, cowctl and the tests"
	@echo "  make demo       protect a real Debian root, change it, commit it, cut the power (as root)"
	@echo "  make check      all tests that fit in CI (as root)"
	@echo "  make check-unit | check-crash | check-fuzz | check-bats | check-tsan | check-soak   the parts of it"
	@echo "  make crash REPLAY=ID   one schedule of check-crash again; make check-mutants: each rule switched off is noticed"
	@echo "  make check-replay   power cuts from a recording by QEMU, 2,000 points (as root)"
	@echo "  make check-kills   all processes of a daemon killed 200 times in commits, and 60 times in each other command (30 minutes; as root)"
	@echo "  make check-report   the page of cowctl report in chromium (fetches axe-core with npm; as root)"
	@echo "  make check-layouts   file systems of many mkfs options, killed in a commit (LAYOUTS=REGEX; as root)"
	@echo "  make check-xfstests | check-pjdfstest   on cowfs against plain loop devices (cloned and built, or XFSTESTS=DIR, PJDFSTEST=DIR; FS=, TESTS=; as root)"
	@echo "  make fuzz TARGET=ring SECONDS=600   libFuzzer (clang); make fuzz-all MINUTES=30: of each target"
	@echo "  make coverage   branches of log/ and commit/ that tests have taken (gcovr; as root)"
	@echo "  make soak       half an hour of stress in a small cgroup (COWFS_SOAK_SECONDS; as root)"
	@echo "  make check-vm   virtual machines: boot, shutdown, power cuts (hours; as root; CASES=\"timer ends:debian12\")"
	@echo "  make image      bootable disk images with cowfs inside; make run-image IMAGE=busybox boots one (as root)"
	@echo "  make bench      the figures of docs/BENCHMARKS.md (as root)"
	@echo "  make bench-commit   what commits cost on every card of the flash model, for cowfs and others (as root)"
	@echo "  make lint       compiler warnings as errors, shellcheck, man page check"
	@echo "  make install    to DESTDIR and prefix ($(prefix)); make uninstall takes it away"
	@echo "  make clean"
	@echo "  V=1  SAN=address,undefined | SAN=thread  CC=clang  STRIP= (install with symbols)"

deps:
	@if [ "$$(id -u)" != 0 ]; then echo "make deps installs packages: run it as root" >&2; exit 1; fi
	$(Q)missing=; for p in $(DEPS); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then echo "deps: nothing missing"; exit 0; fi; \
	echo "deps: installing$$missing"; export DEBIAN_FRONTEND=noninteractive; \
	apt-get -qq update && apt-get -qq -y --no-install-recommends install $$missing >/dev/null

all: $(PROGS) $(HELPERS) $(CARDSIM) $(UNIT_BIN) $(FUZZ_BIN) $(B)/tests/mkgolden $(TOOL_BIN) $(RECORDER) $(REPLAYER) $(SHIM) $(if $(CRASH_SRC),$(B)/tests/crash)

$(B)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC      $<")
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# the page of cowctl report: template, style, script and uPlot (MIT) in one file, which the program has inside
REPORT := page.css page.js uPlot.LICENSE uPlot.min.css uPlot.iife.min.js
$(B)/report.html: cowfs/wear/page/page.html $(REPORT:%=cowfs/wear/page/%) Makefile
	@mkdir -p $(@D)
	$(if $(Q),@echo "  PAGE    $@")
	$(Q)sed $(foreach f,$(REPORT),-e '/^@$f@$$/{' -e 'r cowfs/wear/page/$f' -e 'd' -e '}') $< >$@.new && mv $@.new $@
$(B)/obj/cowfs/wear/report.o: $(B)/report.html
# so are the published flash profiles
$(B)/obj/cowfs/flash/profile.o: cowfs/flash/profiles.json

$(B)/libcowfs.a: $(LIB_OBJ)
	$(if $(Q),@echo "  AR      $@")
	$(Q)rm -f $@ && ar rcs $@ $^

# libfuse ends its threads with pthread_cancel, for which glibc loads libgcc_s when it is called: too late for a
# process whose root has been switched, and nothing that copies programs into an initramfs would know of it
$(PROGS): ALL_LIBS += -Wl,--no-as-needed -lgcc_s
$(B)/cowfs: $(B)/obj/cowfs/daemon/cowfs.o $(B)/libcowfs.a
$(B)/cowctl: $(B)/obj/cowfs/cli/cowctl.o $(B)/libcowfs.a
$(PROGS):
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LIBS)

$(HELPERS): $(B)/%.cowfs: $(B)/obj/cowfs/attach/%.o $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LIBS)

$(CARDSIM): $(B)/obj/cowfs/sim/cardsim.o $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LIBS)

$(B)/tests/%_test: $(B)/obj/tests/unit/%_test.o $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LIBS) -lcmocka

$(TOOL_BIN): $(B)/tests/%: $(B)/obj/tests/tools/%.o $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LIBS)

$(RECORDER): $(B)/tests/%: $(B)/obj/tests/bench/commit/%.o $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LIBS)
$(REPLAYER): $(REPLAY_SRC:%.c=$(B)/obj/%.o) $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LIBS)

# preloaded into other programs: no sanitizer, no library of ours
$(SHIM): $(B)/tests/%.so: tests/tools/%.c Makefile
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) -std=gnu17 $(WARN) -D_GNU_SOURCE -O2 -g -fPIC -shared -pthread -o $@ $< -ldl

$(B)/tests/powercut_test: | $(SHIM)

$(B)/tests/crash: $(CRASH_SRC:%.c=$(B)/obj/%.o) $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LIBS)

# Test programs that tell stories of a toy card (tests/toy.h).
TOY := $(B)/obj/tests/toy.o

$(B)/tests/golden_test: $(B)/obj/tests/unit/golden_test.o $(B)/obj/tests/golden/golden.o $(TOY) $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LIBS) -lcmocka
$(B)/tests/mkgolden: $(B)/obj/tests/tools/mkgolden.o $(B)/obj/tests/golden/golden.o $(TOY) $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -Wl,--wrap=getrandom,--wrap=time,--wrap=clock_gettime -o $@ $^ $(ALL_LIBS)
# the allocator of cowfs's own code, not of the libraries
$(B)/tests/alloc_test: $(B)/obj/tests/unit/alloc_test.o $(TOY) $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) $(addprefix -Wl$(comma)--wrap=,$(ALLOCATORS)) -o $@ $^ $(ALL_LIBS) -lcmocka
ALLOCATORS := malloc calloc realloc aligned_alloc posix_memalign strdup
$(B)/obj/tests/unit/alloc_test.o: CFLAGS += -Itests
TOY_TESTS := log_fault_test log_forged_test commit_fault_test
$(TOY_TESTS:%=$(B)/tests/%): $(B)/tests/%: $(B)/obj/tests/unit/%.o $(TOY) $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LIBS) -lcmocka
$(TOY_TESTS:%=$(B)/obj/tests/unit/%.o): CFLAGS += -Itests
# with a clock of its own
$(B)/tests/wear_test: $(B)/obj/tests/unit/wear_test.o $(TOY) $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -Wl,--wrap=time -o $@ $^ $(ALL_LIBS) -lcmocka
$(B)/obj/tests/unit/wear_test.o: CFLAGS += -Itests
$(B)/obj/tests/unit/golden_test.o: CFLAGS += -DGOLDEN_DIR='"$(CURDIR)/tests/golden"'
$(B)/obj/tests/unit/golden_test.o $(B)/obj/tests/golden/golden.o $(B)/obj/tests/tools/mkgolden.o: CFLAGS += -Itests

$(FUZZ_BIN): $(B)/tests/fuzz_%: $(B)/obj/tests/fuzz/%.o $(B)/obj/tests/fuzz/main.o $(B)/obj/tests/fuzz/image.o \
		$(TOY) $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LIBS)
$(B)/obj/tests/fuzz/%.o: CFLAGS += -Itests
# the same with libFuzzer's main: see fuzz
$(B)/tests/libfuzzer_%: $(B)/obj/tests/fuzz/%.o $(B)/obj/tests/fuzz/image.o $(TOY) $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(ALL_LIBS)

# ---- tests. `check` and `demo` install what they need first, then call make again. ----

check: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$(MAKE) --no-print-directory check-unit check-crash-short check-fuzz check-bats check-layouts-short check-demo check-bench-commit check-vm-short check-replay-short check-tsan check-soak check-docs
	$(Q)$(MAKE) --no-print-directory SAN=address,undefined check-fuzz

check-unit: $(UNIT_BIN)
	@echo "check-unit: $(words $^) programs"
	$(Q)tests/run-unit.sh $^

check-crash-short: $(B)/tests/crash
	@echo "check-crash-short: simulated card, power cuts, named attacks"
	$(Q)$< --images 40000
	$(Q)$< --images 20000 --thin 8

# With --thin the histories are others: they go on from images that the full runs seldom keep.
check-crash: $(B)/tests/crash
	$(Q)$< --images 1000000 --forgeries 100000
	$(Q)for n in 2 3 5 8; do $< --images 200000 --thin $$n --seed $${n}0000 || exit 1; done

# Each rule switched off in a copy of the source: the attack that aims at it must fail. Five minutes or more; not part of check.
check-mutants:
	$(Q)tests/crash/mutants.sh

# What a failure of check-crash named: make crash REPLAY=w:7:3:12:5
crash: $(B)/tests/crash
	@test -n "$(REPLAY)" || { echo "make crash REPLAY=ID, as a failure tells it" >&2; exit 2; }
	$(Q)$< --replay "$(REPLAY)"

# Writes tests/golden anew: only before the first release of a format version, see docs/HACKING.md.
golden: $(B)/tests/mkgolden
	$(Q)$< tests/golden && git -C tests/golden --no-pager diff --stat .

# Mutations for each target: what fits into half a minute.
FUZZ_RUNS ?= btrfs=2000 codec=30000 conf=50000 extfs=3000 flash=4000 options=100000 request=100000 ring=3000 super=6000

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

# Needs clang and its runtime (Debian: clang, libclang-rt-dev or libclang-rt-14-dev). What it finds lies in
# build-...-fuzz/TARGET; a crash goes to tests/fuzz/corpus/TARGET with its fix.
fuzz:
	@test -n "$(TARGET)" || { echo "make fuzz TARGET=one of: $(FUZZ_SRC:tests/fuzz/%.c=%) [SECONDS=60]" >&2; exit 2; }
	$(Q)$(MAKE) --no-print-directory CC=clang SAN=address,undefined FUZZ=1 fuzz-run
fuzz-run: $(B)/tests/libfuzzer_$(TARGET)
	@mkdir -p $(B)/$(TARGET)
	$(Q)$< -max_total_time=$(or $(SECONDS),60) -timeout=20 -max_len=4096 -print_final_stats=1 \
		-artifact_prefix=$(B)/$(TARGET)- $(B)/$(TARGET) tests/fuzz/corpus/$(TARGET)

# Every target until it has had MINUTES of CPU time, twice that for ring and extfs; goes on where it was stopped, and prints a
# table of figures (tests/fuzz/all.py).
fuzz-all:
	$(Q)$(MAKE) --no-print-directory CC=clang SAN=address,undefined FUZZ=1 fuzz-all-run
fuzz-all-run: $(FUZZ_SRC:tests/fuzz/%.c=$(B)/tests/libfuzzer_%)
	$(Q)nice -n 19 tests/fuzz/all.py $(B) tests/fuzz/corpus $(B)/all $(or $(MINUTES),30)

check-bats: all
	@echo "check-bats: the programs on loop devices (as root)"
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) unshare --mount --propagation private \
		bats --print-output-on-failure --timing tests/bats

check-kills: all
	@echo "check-kills: 100 kills of all processes of a daemon in the middle of commits, twice (as root)"
	$(Q)COUNT=100 COWFS_BUILD=$(CURDIR)/$(B) unshare --mount --propagation private \
		bats --print-output-on-failure --timing tests/bats/kills.bats
	@echo "check-kills: 60 kills of each other command (as root)"
	$(Q)COUNT=60 COWFS_BUILD=$(CURDIR)/$(B) unshare --mount --propagation private \
		bats --print-output-on-failure --timing tests/bats/kills_elsewhere.bats

# The page of cowctl report in a browser: light, dark, phone, desktop, keyboard, contrast. Not part of check: chromium is large, and
# axe-core comes from npm (both are for this test only). The screenshots are for looking at.
AXE := axe-core@4.14.1
check-report: DEPS += chromium fonts-dejavu-core $(shell command -v npm >/dev/null || echo npm)
check-report: deps
	$(Q)$(MAKE) --no-print-directory $(B)/cowctl
	$(Q)[ -s $(B)/report/axe.js ] || { echo "check-report: fetching $(AXE) with npm"; mkdir -p $(B)/report && cd $(B)/report && \
		npm pack --silent $(AXE) >/dev/null && tar -xOf axe-core-*.tgz package/axe.min.js >axe.new && mv axe.new axe.js; }
	$(Q)tests/report/check.py $(B)/cowctl $(B)/report/axe.js $(B)/report $(CASES)

# File systems of many mkfs options, killed in a commit.
check-layouts-short: all
	@echo "check-layouts-short: a kill in a commit on each of a few layouts (as root)"
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/layouts.sh --short

check-layouts: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/layouts.sh $(LAYOUTS)

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
	$(Q)$(MAKE) --no-print-directory SAN=thread O=1 build-thread/cowfs build-thread/cowctl build-thread/tests/eioshim.so
	$(Q)COWFS_BUILD=$(CURDIR)/build-thread tests/tsan.sh

# Virtual machines. The short form is one life of each kind of guest; the guests are kept in build/vm.
check-vm-short: all
	@echo "check-vm-short: boot, commit, reboot, verify in virtual machines (as root)"
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/vm/matrix --short $(CASES)

check-vm: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$(MAKE) --no-print-directory image
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/vm/image.py $(IMAGES:%=$(B)/cowfs-%.img)
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/vm/matrix $(CASES)

IMAGES := debian12 busybox
image: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)for i in $(or $(IMAGE),$(IMAGES)); do COWFS_BUILD=$(CURDIR)/$(B) image/build $$i $(B)/cowfs-$$i.img || exit 1; done

run-image:
	$(Q)image/run $(B)/cowfs-$(or $(IMAGE),debian12).img

soak: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) COWFS_SOAK_SECONDS=$${COWFS_SOAK_SECONDS:-1800} tests/soak.sh

check-soak:
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) COWFS_SOAK_SECONDS=$${COWFS_SOAK_SECONDS:-120} tests/soak.sh

# Power cuts on real ext4: all that reaches the card is recorded by QEMU, and replayed to so many points.
check-replay-short: all
	@echo "check-replay-short: power cuts from a recording by QEMU (as root)"
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/replay/replay.sh --points 40 --rounds 8

check-replay: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/replay/replay.sh --points 1000 --log 2
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/replay/replay.sh --points 1000 --log 8

check-docs:
	@echo "check-docs: man pages, options in help and manual"
	$(Q)for m in $(MAN); do mandoc -T lint -W warning $$m || exit 1; done
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/help.sh

demo: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/demo.sh

# pairs of boots in virtual machines
bench-boot: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/vm/bench-boot $(PAIRS)

bench: DEPS += $(BENCH_DEPS)
bench: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/bench/commit.sh
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/bench/path.sh

# Recorded traces of real programs, priced on every card of the flash model for cowfs and for others: docs/bench-commit.
bench-commit: DEPS += $(BENCH_DEPS)
bench-commit: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/bench/commit/bench.py $(B)/traces --out docs/bench-commit

# One small trace, three cards, seconds; a power cut behind each write.
check-bench-commit: all
	@echo "check-bench-commit: a trace priced for cowfs and for others, power cuts (as root)"
	$(Q)COWFS_BUILD=$(CURDIR)/$(B) tests/bench/commit/bench.py --short

# The layout of C files, with one version of clang-format, because each lays out a little differently. Lines longer than 100
# columns: only tables in comments and texts for users, which stay in one piece to be found.
CLANG_FORMAT := clang-format-14
FORMATTED := $(sort $(wildcard cowfs/*/*.[ch] tests/*.[ch] tests/*/*.[ch] tests/bench/commit/*.[ch]))
format:
	$(Q)$(CLANG_FORMAT) -i $(FORMATTED)

lint:
	$(Q)$(MAKE) --no-print-directory B=build/lint-gcc WERROR=1 all
	$(Q)if command -v clang >/dev/null; then $(MAKE) --no-print-directory B=build/lint-clang CC=clang WERROR=1 all; \
	else echo "lint: no clang here: only gcc's warnings were looked at"; fi
	$(Q)shellcheck -e SC1091 $(wildcard $(SHELL_SRC))
	$(Q)tests/includes.py
	$(Q)if command -v $(CLANG_FORMAT) >/dev/null; then $(CLANG_FORMAT) --dry-run --Werror $(FORMATTED); \
	else echo "lint: no $(CLANG_FORMAT) here: the layout of C files was not looked at"; fi
	$(Q)$(MAKE) --no-print-directory check-docs

# ---- install ----

install: $(PROGS) $(HELPERS) $(CARDSIM)
	install -d $(DESTDIR)$(sbindir) $(DESTDIR)$(bindir) $(DESTDIR)$(mountdir) $(patsubst %,$(DESTDIR)$(mandir)/man%,1 5 7 8) \
		$(DESTDIR)$(docdir) $(DESTDIR)$(unitdir) $(DESTDIR)$(bashdir) $(DESTDIR)/etc/cowfs
	install -m 755 $(if $(STRIP),-s --strip-program=$(STRIP)) $(PROGS) $(HELPERS) $(DESTDIR)$(sbindir)/
	install -m 755 $(if $(STRIP),-s --strip-program=$(STRIP)) $(CARDSIM) $(DESTDIR)$(bindir)/
	for h in $(notdir $(HELPERS)); do [ $(DESTDIR)$(mountdir) -ef $(DESTDIR)$(sbindir) ] || \
		ln -sf $(sbindir)/$$h $(DESTDIR)$(mountdir)/$$h || exit 1; done
	for m in $(MAN); do install -m 644 $$m $(DESTDIR)$(mandir)/man$${m##*.}/ || exit 1; done
	ln -sf mount.cowfs.8 $(DESTDIR)$(mandir)/man8/umount.cowfs.8
	install -m 644 systemd/cowfs.conf.example $(DESTDIR)$(docdir)/
	install -m 644 cowfs/cli/completion.bash $(DESTDIR)$(bashdir)/cowctl
	install -m 644 cowfs/sim/cardsim.bash $(DESTDIR)$(bashdir)/cowfs-cardsim
	for f in $(SHIP); do from=$${f%%:*} mode=$${f##*:} to=$${f#*:}; to=$${to%:*}; install -d $(DESTDIR)$${to%/*} && \
		sed '$(PLACES)' $$from >$(DESTDIR)$$to && chmod $$mode $(DESTDIR)$$to || exit 1; done
	for u in $(UNITS); do sed '$(PLACES)' $$u >$(DESTDIR)$(unitdir)/$${u##*/} && \
		chmod 644 $(DESTDIR)$(unitdir)/$${u##*/} || exit 1; done

uninstall:
	rm -f $(PROGS:$(B)/%=$(DESTDIR)$(sbindir)/%) $(HELPERS:$(B)/%=$(DESTDIR)$(sbindir)/%) $(CARDSIM:$(B)/%=$(DESTDIR)$(bindir)/%) \
		$(HELPERS:$(B)/%=$(DESTDIR)$(mountdir)/%) \
		$(foreach m,$(MAN),$(DESTDIR)$(mandir)/man$(lastword $(subst ., ,$(m)))/$(notdir $(m))) \
		$(DESTDIR)$(mandir)/man8/umount.cowfs.8 $(DESTDIR)$(docdir)/cowfs.conf.example $(DESTDIR)$(bashdir)/cowctl $(DESTDIR)$(bashdir)/cowfs-cardsim \
		$(UNITS:systemd/%=$(DESTDIR)$(unitdir)/%) \
		$(foreach f,$(SHIP),$(DESTDIR)$(word 2,$(subst :, ,$f)))
	-rmdir $(DESTDIR)$(docdir) $(DESTDIR)$(libdir) $(DESTDIR)$(dracutdir) $(DESTDIR)$(busyboxdir) $(DESTDIR)/etc/cowfs 2>/dev/null

.SECONDARY:
-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)

clean:
	rm -rf build build-*

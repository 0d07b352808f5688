# SPDX-License-Identifier: MIT
# cowfs: one Makefile, not recursive; tests/tests.mk has the tests, lab/lab.mk the measurements. `make help` lists the targets.
#   V=1 shows commands, SAN=address,undefined or SAN=thread builds with sanitizers,
#   CC=clang, O=2, CPPFLAGS=, CFLAGS=, LDFLAGS=, DESTDIR= and prefix= as usual. Programs are installed without symbols, because they go
#   into the initramfs; STRIP= keeps the symbols. ARCH=armhf builds for that architecture of Debian in build/armhf,
#   LDFLAGS=-static programs that need no library (B=build/static keeps them apart).

VERSION := 0.2.0
ifneq ($(words $(CURDIR)),1)
$(error make splits names at blanks: move '$(CURDIR)' to a folder without a blank in its path)
endif
prefix  ?= /usr
sbindir ?= $(prefix)/sbin
bindir  ?= $(prefix)/bin
mandir  ?= $(prefix)/share/man
docdir  ?= $(prefix)/share/doc/cowfs
unitdir ?= $(prefix)/lib/systemd/system
libdir  ?= $(prefix)/lib/cowfs
# where cowctl looks for the programs of cowfs-tools: ../libexec/cowfs beside its own folder
libexecdir ?= $(prefix)/libexec/cowfs
# where initramfs-tools and dracut look; packages and what is installed by hand have places of their own in the first
initramfsdir ?= $(if $(filter /usr,$(prefix)),/usr/share,/etc)/initramfs-tools
dracutdir ?= /usr/lib/dracut/modules.d/90cowfs
initcpiodir ?= /usr/lib/initcpio
busyboxdir ?= $(prefix)/share/cowfs/busybox
bashdir ?= $(prefix)/share/bash-completion/completions
# where mount(8) looks for helpers: /sbin, which is /usr/sbin today. Where it is not: mountdir=/sbin
mountdir ?= $(if $(filter /usr,$(prefix)),$(sbindir),/sbin)
comma   := ,
# not from the environment: kernel developers export an ARCH of their own
CROSS   := $(if $(filter command,$(firstword $(origin ARCH))),$(ARCH))
B       := build$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(COV),-cov)$(if $(FUZZ),-fuzz)$(CROSS:%=/%)
# one name for one folder: the files of dependencies have it
override B := $(patsubst $(CURDIR)/%,%,$(B))
Q       := $(if $(V),,@)
# $(call say,VERB,FILE): one line for a command that is not shown
say     = $(if $(Q),@printf '  %-7s %s\n' $1 $2)

ifdef CROSS
# Debian's cross toolchain and libraries: make cross-deps
TRIPLET := $(or $(shell dpkg-architecture -f -a $(CROSS) -qDEB_HOST_GNU_TYPE 2>/dev/null),$(error $(CROSS) is not an architecture of Debian))
CC      = $(TRIPLET)-gcc
AR      = $(TRIPLET)-ar
STRIP   = $(TRIPLET)-strip
# the name of the libraries' folder is another on i386
MULTIARCH := $(shell dpkg-architecture -f -a $(CROSS) -qDEB_HOST_MULTIARCH)
PKG_CONFIG = PKG_CONFIG_LIBDIR=/usr/lib/$(MULTIARCH)/pkgconfig:/usr/share/pkgconfig pkg-config
endif
STRIP   ?= strip
PKG_CONFIG ?= pkg-config
# a sanitizer's runtime and gcov make calls of their own: no filter of system calls in such builds (daemon/confine.c)
NO_SECCOMP ?= $(SAN)$(COV)$(FUZZ)
STATIC  := $(filter -static,$(LDFLAGS))
PKGS    := fuse3 ext2fs com_err blkid json-c inih libseccomp libzstd
O       ?= 2
# the user's; what the build needs stands in ALL_CFLAGS and ALL_LDFLAGS
CFLAGS  ?= -O$(O) $(if $(SAN),-g1,-g)
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	   -Wundef -Wwrite-strings -Wformat=2 -Wvla -Wimplicit-fallthrough $(if $(WERROR),-Werror)
# An initramfs carries the programs: what no read or write of the volume passes through is compiled for size, and what a program does
# not call is left out. Tables to unwind the stack serve debuggers only, which take those of -g.
SMALL   := $(if $(SAN)$(COV)$(FUZZ),,$(filter-out base ram export,$(notdir $(wildcard cowfs/*))))
# expanded when first used: the packages come from `make deps`
PKG_CFLAGS = $(eval PKG_CFLAGS := $$(shell $(PKG_CONFIG) --cflags $(PKGS)))$(PKG_CFLAGS)
PKG_LIBS   = $(eval PKG_LIBS := $$(shell $(PKG_CONFIG) $(if $(STATIC),--static) --libs $(PKGS)))$(PKG_LIBS)
# what musl lacks of glibc
MUSL    := $(findstring musl,$(CC) $(shell $(CC) -dumpmachine 2>/dev/null))
ALL_CFLAGS = -std=gnu17 $(if $(MUSL),-isystem packaging/musl) $(WARN) -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=312 \
	     -DCOWFS_VERSION='"$(VERSION)"' -Icowfs $(if $(filter cowfs/%,$<),,-Ilab -Itools) -pthread $(PKG_CFLAGS) $(CPPFLAGS) $(CFLAGS) $(TEST_CFLAGS) \
	     -ffunction-sections -fdata-sections $(if $(SMALL),-fno-asynchronous-unwind-tables) $(if $(filter $(SMALL:%=cowfs/%/%),$<),-Os) \
	     $(if $(filter $(PLATFORM_TIME),$<),,-D_TIME_BITS=64) \
	     $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer) \
	     $(if $(FUZZ),-fsanitize=fuzzer-no-link) $(if $(NO_SECCOMP),-DCOWFS_NO_SECCOMP) \
	     $(if $(COV),$(if $(filter $(COVERED:%=%%),$<),--coverage -O0)) \
	     $(if $(filter lab/sim/profile.c,$<),-DFLASH_PROFILES='"$(abspath $(B)/profiles.json)"') \
	     $(if $(filter thread,$(SAN)),-include tests/lockcheck/lockcheck.h)
# Times have 64 bits on 32-bit machines, too. A file that shares structures with libext2fs or libfuse uses the time_t that
# these were built with.
PLATFORM_TIME := $(shell grep -lE '<(ext2fs/|fuse)|"fs/ext4.h"' cowfs/*/*.c lab/*/*.c tools/*/*.c tests/*/*.c lab/bench/commit/*.c)
ALL_LDFLAGS = -Wl,--gc-sections $(if $(SAN),-fsanitize=$(SAN)) $(if $(COV),--coverage) $(LDFLAGS)
# Each program has what it calls: no daemon needs libzstd. ARMv6 has no atomic operations of 64 bits.
ALL_LIBS   = -pthread -Wl,--push-state,--as-needed $(PKG_LIBS) -laio -latomic -Wl,--pop-state

PROG_SRC := cowfs/daemon/cowfs_main.c cowfs/cli/cowctl_main.c cowfs/boot/boot_main.c cowfs/boot/recover_parts.c cowfs/attach/mount.c cowfs/attach/umount.c cowfs/attach/set_readonly.c lab/sim/cardsim.c tools/measure/measure_main.c
LIB_SRC  := $(filter-out $(PROG_SRC),$(sort $(wildcard cowfs/*/*.c))) $(if $(filter thread,$(SAN)),tests/lockcheck/lockcheck.c)
LIB_OBJ  := $(LIB_SRC:%.c=$(B)/obj/%.o)
# beside the core, which cannot name them: neither the compiler finds their headers for it, nor the linker their objects
LAB_OBJ  := $(patsubst %.c,$(B)/obj/%.o,$(filter-out $(PROG_SRC),$(sort $(wildcard lab/*/*.c tools/*/*.c))))
OBJECTS  := $(LIB_OBJ) $(LAB_OBJ) $(PROG_SRC:%.c=$(B)/obj/%.o)
PROGS    := $(B)/cowfs $(B)/cowctl
HELPERS  := $(B)/mount.cowfs $(B)/umount.cowfs
# for an initramfs
COWFS_BOOT := $(B)/cowfs-boot
BOOT     := $(COWFS_BOOT) $(B)/set-readonly
# a tool for tests and measurements, of no use to a machine that cowfs protects
CARDSIM  := $(B)/cowfs-cardsim
# what cowctl runs for measure, so that no initramfs carries it
MEASURE  := $(B)/libexec/cowctl-measure
# what it runs for wear --html, --outlook and --prometheus; they read files in the folder wear beside them
SCRIPTS  := $(wildcard tools/*/cowctl-*)
# files of tools: tools/wear/wear/FILE, installed as wear/FILE
TOOL_FILES := $(wildcard tools/wear/wear/* tools/measure/measure/*.py)
# for a machine without cowfs: one static file, of which nothing is installed
RECOVER  := $(B)/cowfs-recover
# sources that name the program or its commands; they stand before the library, which has the others of cowctl
RECOVER_OBJ := $(patsubst %,$(B)/obj/recover/%.o,cli/cowctl cli/cmd_check cli/cmd_release cli/cmd_view wire/failure offline/recover offline/view_card)
# what is installed; the map of the linker says what is inside of each (packaging/sbom)
PROGRAMS = $(PROGS) $(HELPERS) $(BOOT) $(if $(TOOLS),$(MEASURE)) $(if $(SIM),$(CARDSIM))
# each program says below what it is made of beside the library, and in LIBS what it is linked with beside ALL_LIBS
LINKED   := $(PROGS) $(HELPERS) $(BOOT) $(CARDSIM) $(MEASURE)

# What is installed beside programs, manuals and completion; other systems name others: docs/PACKAGING.md
PARTS ?= cardsim tools initramfs-tools dracut busybox systemd debian fleet
SIM      := $(filter cardsim,$(PARTS))
TOOLS    := $(filter tools,$(PARTS))

MAN      := $(sort $(filter-out $(if $(SIM),,docs/cowfs-cardsim.1),$(wildcard docs/*.[1-8])))
UNITS    := $(if $(filter systemd,$(PARTS)),$(sort $(wildcard systemd/*.service systemd/*.timer systemd/*.target systemd/*.mount)))
# scripts of each part, with the places that they name: FILE:PATH:MODE
SHIP = $(sort initramfs/cowfs.sh:$(libdir)/cowfs.sh:644 lab/sim/cards.conf:$(libdir)/cards.conf:644 $(foreach p,$(PARTS),$(SHIP_$p)))
# what cowctl setup runs
SHIP_setup = $(foreach f,setup in-tree check-initramfs dpkg-hook root-device,systemd/$f:$(libdir)/$f:755) \
	initramfs/grow-root:$(libdir)/grow-root:755 \
	$(foreach f,setup-checks setup-image,systemd/$f:$(libdir)/$f:644)
SHIP_udev = systemd/which-device:$(libdir)/which-device:755 systemd/61-cowfs.rules:$(prefix)/lib/udev/rules.d/61-cowfs.rules:644
SHIP_initramfs-tools = $(SHIP_setup) initramfs/initramfs-tools/hook:$(initramfsdir)/hooks/cowfs:755 \
	$(foreach f,local-premount local-bottom,initramfs/initramfs-tools/$f:$(initramfsdir)/scripts/$f/cowfs:755)
SHIP_dracut = $(SHIP_setup) $(foreach f,module-setup.sh cowfs-root.sh cowfs-pre-mount.sh,initramfs/dracut/$f:$(dracutdir)/$f:755) \
	$(foreach f,cowfs-root.service cowfs-root.conf cowfs-compose.service,initramfs/dracut/$f:$(dracutdir)/$f:644) \
	initramfs/dracut/below.conf:$(dir $(patsubst %/,%,$(dir $(dracutdir))))dracut.conf.d/50-cowfs.conf:644
SHIP_mkinitcpio = $(SHIP_setup) $(foreach f,install hook,initramfs/mkinitcpio/$f:$(initcpiodir)/$(f:hook=hooks)/cowfs:644) \
	initramfs/mkinitcpio/cowfs.conf:/etc/mkinitcpio.conf.d/cowfs.conf:644 \
	initramfs/dracut/cowfs-root.sh:$(libdir)/cowfs-root.sh:755 \
	$(foreach f,cowfs-root.service cowfs-root.conf,initramfs/dracut/$f:$(libdir)/$f:644) \
	systemd/kernel-hook:$(initcpiodir)/post/cowfs:755
# what systems without systemd share
SHIP_init = $(foreach f,trial-checks proven reject,systemd/$f:$(libdir)/$f:755) initramfs/busybox/system.sh:$(libdir)/system.sh:644 initramfs/busybox/commit-timer:$(libdir)/commit-timer:755
SHIP_services = $(SHIP_init) $(SHIP_udev) systemd/cowfs.shutdown:$(libdir)/last-commit:755 \
	systemd/root-options:$(libdir)/root-options:755
SHIP_busybox = $(SHIP_init) $(foreach f,init rcS rcK mkinitramfs,initramfs/busybox/$f:$(busyboxdir)/$f:755)
SHIP_openrc = $(SHIP_services) $(foreach f,cowfs cowfs-root cowfs-shutdown,packaging/openrc/$f:/etc/init.d/$f:755) \
	packaging/openrc/cowfs.conf:/etc/rc.conf.d/cowfs.conf:644
SHIP_runit = $(SHIP_services) packaging/runit/run:/etc/sv/cowfs/run:755 \
	packaging/runit/02-cowfs.sh:/etc/runit/core-services/02-cowfs.sh:644 \
	$(foreach f,65-cowfs.sh 85-cowfs.sh,packaging/runit/$f:/etc/runit/shutdown.d/$f:644)
SHIP_systemd = $(SHIP_udev) $(foreach f,$(HOOKS),systemd/$f:$(libdir)/$f:755) \
	systemd/cowfs-generator:$(prefix)/lib/systemd/system-generators/cowfs-generator:755 \
	systemd/cowfs.shutdown:/usr/lib/systemd/system-shutdown/cowfs:755 \
	systemd/cowfs.sleep:/usr/lib/systemd/system-sleep/cowfs:755 \
	$(foreach f,cowfs.rules.yml cowfs-dashboard.json,packaging/prometheus/$f:$(docdir)/examples/$f:644)
SHIP_tools = $(foreach f,$(SCRIPTS),$f:$(libexecdir)/$(notdir $f):755) $(foreach f,$(TOOL_FILES),$f:$(libexecdir)/$(notdir $(patsubst %/,%,$(dir $f)))/$(notdir $f):644)
# what RAUC, SWUpdate and Mender call
SHIP_fleet = $(foreach f,ship rauc swupdate,packaging/fleet/$f:$(libdir)/fleet/$f:755) \
	packaging/fleet/mender:/usr/share/mender/modules/v3/cowfs:755 \
	packaging/fleet/swupdate.conf:/usr/lib/swupdate/conf.d/50-cowfs:644
SHIP_debian = systemd/90-cowfs.motd:/etc/update-motd.d/90-cowfs:755 \
	systemd/dpkg.cfg:/etc/dpkg/dpkg.cfg.d/cowfs:644 systemd/apt.conf:/etc/apt/apt.conf.d/80cowfs:644 \
	systemd/grub-install:$(libdir)/bin/grub-install:755 \
	systemd/grub.cfg:/etc/default/grub.d/cowfs.cfg:644 \
	systemd/kernel-hook:/etc/kernel/postinst.d/x-cowfs:755 \
	systemd/kernel-hook:/etc/initramfs/post-update.d/cowfs:755 \
	$(foreach d,kernel/postinst.d kernel/postrm.d initramfs/post-update.d,systemd/kernel-hook:/etc/$d/zzz-cowfs:755)
HOOKS := grub-probe identity events root-options root-parent trial-checks proven reject
PLACES = s|:-/usr/lib/systemd/system}|:-$(unitdir)}|;s|/usr/sbin/\(cow[a-z]*\)|$(sbindir)/\1|g;s|/usr/lib/cowfs|$(libdir)|g;s|/usr/share/cowfs|$(prefix)/share/cowfs|g

# What builds and tests cowfs; a target that needs more installs that itself. The second list: packages that not every
# Debian has (13 has no clang-format 14; GRUB for a PC, which x86 guests need, is there on x86 alone).
DEPS := build-essential pkg-config libfuse3-dev libext2fs-dev comerr-dev libblkid-dev libjson-c-dev libinih-dev libaio-dev libseccomp-dev libzstd-dev \
	libcmocka-dev linux-libc-dev debhelper systemd bats fio jq shellcheck mandoc codespell clang e2fsprogs xfsprogs btrfs-progs dosfstools \
	util-linux util-linux-extra mmdebstrap fdisk minisign procps openssh-client sqlite3 stress-ng python3 python3-jinja2 python3-jsonschema git ca-certificates \
	qemu-system-x86 qemu-system-common qemu-utils grub-common busybox-static cpio kmod f2fs-tools nilfs-tools mtools exfatprogs u-boot-tools libubootenv-tool partclone rsync squashfs-tools erofs-utils spin
DEPS_IF_THERE := systemd-dev clang-format-14 grub-pc-bin grub-efi-amd64-bin ovmf

.PHONY: help deps all recover-static programs cross cross-deps install uninstall deb dist release clean
.DEFAULT_GOAL := help

help:
	@echo "cowfs $(VERSION)"
	@echo "  make deps       install what building and testing need (Debian 12 or 13, as root)"
	@echo "  make all        build cowfs, cowctl and the tests"
	@echo "  make demo       after make deps: protect a real Debian root, change it, commit it, cut the power (as root)"
	@echo "  make check      all tests that fit in CI, after make deps (as root)"
	@echo "  make check-unit | check-crash | check-fuzz | check-bats | check-tsan | check-soak   the parts of it"
	@echo "  make crash REPLAY=ID   one schedule of check-crash again; make check-mutants: each rule switched off is noticed"
	@echo "  make check-replay   power cuts from a recording by QEMU, 2,000 points (as root)"
	@echo "  make check-kills   all processes of a daemon killed 200 times in commits, and 60 times in each other command (30 minutes; as root)"
	@echo "  make kills      1,000 workers of a mounted volume killed under load, each replaced; how long a read waits (KILLS=; 20 minutes; as root)"
	@echo "  make power      the power is cut 100 times 5 s after a signal, with slow and fast cards (CUTS=; 25 minutes; as root)"
	@echo "  make check-fleet   a year of three simulated devices in a real Prometheus (as root)"
	@echo "  make check-report   the page of cowctl wear --html in chromium (fetches axe-core with npm; as root)"
	@echo "  make site       the documents as a web site in build/site; check-site: its links, its search, a screen of 390 pixels (install mkdocs, chromium; as root)"
	@echo "  make check-fleet-tools   updates shipped by rauc, swupdate and mender of this Debian (installs them; as root)"
	@echo "  make check-packaging   hooks and scripts of Arch, OpenRC, runit, Buildroot (as root)"
	@echo "  make check-layouts   file systems of many mkfs options, killed in a commit (LAYOUTS=REGEX; as root)"
	@echo "  make check-xfstests | check-pjdfstest   on cowfs against plain loop devices (cloned and built, or XFSTESTS=DIR, PJDFSTEST=DIR; FS=, TESTS=; as root)"
	@echo "  make fuzz TARGET=ring SECONDS=600   libFuzzer (clang); make fuzz-all MINUTES=30: of each target; make check-oss-fuzz"
	@echo "  make coverage   branches of log/ and commit/ that tests have taken (gcovr; as root)"
	@echo "  make soak       half an hour of stress in a small cgroup (COWFS_SOAK_SECONDS; as root)"
	@echo "  make check-vm   virtual machines: boot, shutdown, power cuts (hours; as root; CASES=\"timer ends:debian12\")"
	@echo "  make deb        Debian packages in build/deb (ARCH=arm64: for another architecture)"
	@echo "  make check-deb  those packages: lintian, same bits again, a clean Debian, a guest (installs lintian, piuparts; VM=: no guest; as root)"
	@echo "  make dist       the tarball of this commit in build/dist; make check-dist: deps, deb, check-unit of it in a clean Debian 12 and 13 (as root)"
	@echo "  make check-debs   packages for amd64, arm64, armhf and riscv64 of Debian 12 and 13, each built twice and installed (DEBS=; as root)"
	@echo "  make release KEY=FILE   tarball, packages and lists of parts in build/release, signed with that key of minisign (as root)"
	@echo "  make image      disk images to flash, docs/IMAGE.md (IMAGE=debian12-pc, -rpi, -uboot, debian13-pc, busybox, squashfs); make run-image IMAGE=busybox boots one (as root)"
	@echo "  make bench      the figures of docs/BENCHMARKS.md (as root)"
	@echo "  make bench-commit   what commits cost on every card of the flash model, for cowfs and others (as root)"
	@echo "  make bench-blocklayer   the same through loop device, daemon and kernel, for two traces (as root)"
	@echo "  make pictures   those of the README: from their texts, and recorded from a real run (installs graphviz, termtosvg; as root)"
	@echo "  make lint       warnings of gcc and clang as errors, layout and includes of C files, shellcheck, manuals, spelling"
	@echo "  make cross-deps | cross | check-cross ARCH=armhf   for another architecture of Debian, in build/armhf"
	@echo "  make recover-static   build/cowfs-recover: one file for a card of cowfs in a machine without cowfs (ARCH=arm64)"
	@echo "  make programs   what make install installs, without the tests"
	@echo "  make install    to DESTDIR and prefix ($(prefix)); make uninstall takes it away. PARTS=\"$(PARTS)\""
	@echo "  make clean"
	@echo "  V=1  SAN=address,undefined | SAN=thread  CC=clang  STRIP= (install with symbols)"

deps:
	$(Q)missing() { \
		for p in $(DEPS); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done; \
		for p in $(DEPS_IF_THERE); do dpkg -s $$p >/dev/null 2>&1 || ! apt-cache show $$p >/dev/null 2>&1 || echo $$p; done; \
	}; \
	[ -n "$$(missing)" ] || { echo "deps: nothing missing"; exit 0; }; \
	[ "$$(id -u)" = 0 ] || { echo "make deps installs packages: run it as root" >&2; exit 1; }; \
	export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && set -- $$(missing) && echo "deps: installing $$*" && \
	apt-get -qq -y --no-install-recommends install "$$@" >/dev/null

include lab/lab.mk
include tests/tests.mk

all: $(LINKED) $(B)/cards.conf $(B)/libexec/wear $(SHIM) $(if $(SAN)$(COV)$(FUZZ)$(MUSL),,$(RECOVER))

# ---- another architecture ----

# Where a library cannot be installed for two architectures at a time (libext2fs-dev of Debian 12), nothing is removed: a
# chroot or container without the native one is the place then.
CROSS_DEPS = gcc-$(subst _,-,$(TRIPLET)) $(patsubst %,%:$(CROSS),$(filter lib%-dev comerr-dev,$(DEPS))) qemu-user-static \
	e2fsprogs python3
cross-deps: need-arch
	$(Q)dpkg --add-architecture $(CROSS) && apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
		apt-get -qq -y --no-remove --no-install-recommends install $(CROSS_DEPS) >/dev/null

cross: need-arch all

.PHONY: need-arch
need-arch:
	@test -n "$(CROSS)" || { echo "say for which architecture: ARCH=arm64, armhf, riscv64, s390x, ..." >&2; exit 2; }

# ---- programs ----

# What the compiler has said of a file stays beside its object: lint looks at it.
compile = $(Q)failed=; $(CC) $1 2>$(basename $@).said || failed=1; cat $(basename $@).said >&2; [ -z "$$failed" ]

$(OBJECTS): $(B)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(call compile,$(ALL_CFLAGS) -MMD -MP -c -o $@ $<)

# stripped, because it is carried to other machines
recover-static: $(RECOVER)
$(RECOVER_OBJ): $(B)/obj/recover/%.o: cowfs/%.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(call compile,$(ALL_CFLAGS) -DCOWFS_RECOVER -DCOWCTL='"cowfs-recover"' -MMD -MP -c -o $@ $<)
$(RECOVER): $(B)/obj/cowfs/cli/cowctl_main.o $(addprefix $(B)/obj/cowfs/boot/,fuse_parts.o recover_parts.o) $(RECOVER_OBJ) $(B)/libcowfs.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -static -s -o $@ $^ $$($(PKG_CONFIG) --static --libs $(PKGS)) -laio -pthread \
		-Wl,--push-state,--as-needed -latomic -Wl,--pop-state

# tools that were built and not installed: where cowctl looks for them
$(B)/libexec/wear: $(SCRIPTS) Makefile
	@mkdir -p $(@D)
	$(Q)ln -sfn $(addprefix $(CURDIR)/,$(SCRIPTS)) $(@D)/ && ln -sfn $(CURDIR)/tools/wear/wear $@ && ln -sfn $(CURDIR)/tools/measure/measure $(@D)/

# the published flash profiles, and those of cards that users measured, without the comment: inside of what has the model of flash
$(B)/profiles.json: lab/sim/profiles.json lab/sim/measured $(wildcard lab/sim/measured/*.json)
	@mkdir -p $(@D)
	$(Q)sed -e 's/^ *//' -e '/^"\/\/": \[$$/,/^\],$$/d' $(filter %.json,$^) >$@.new && mv $@.new $@
$(B)/obj/lab/sim/profile.o: $(B)/profiles.json

# what the daemon knows of them, beside programs that were built and not installed
$(B)/cards.conf: lab/sim/cards.conf
	@mkdir -p $(@D)
	$(Q)ln -sfn $(abspath $<) $@

$(B)/libcowfs.a: $(LIB_OBJ)
$(B)/liblab.a: $(LAB_OBJ)
$(B)/libcowfs.a $(B)/liblab.a:
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(B)/cowfs: $(B)/obj/cowfs/daemon/cowfs_main.o
# cmd.h: the weak references to commands take what is named here, and nothing from the library
$(B)/cowctl: $(filter $(B)/obj/cowfs/cli/%,$(OBJECTS))
# An initramfs has no other use for libfuse, json-c, inih and libaio, so it carries the parts that are called. The others are
# shared with udev (libblkid), e2fsck (libext2fs) and systemd (libseccomp). A library without an archive is linked as a shared one.
$(COWFS_BOOT): $(B)/obj/cowfs/boot/boot_main.o $(B)/obj/cowfs/boot/fuse_parts.o
$(COWFS_BOOT): ALL_LIBS = $(if $(STATIC),$(PKG_LIBS) -laio,$(foreach l,fuse3 json-c inih aio,\
	$(or $(filter /%,$(shell $(CC) -print-file-name=lib$l.a)),-l$l)) $(shell $(PKG_CONFIG) --libs ext2fs com_err blkid libseccomp)) -pthread \
	-Wl,--push-state,--as-needed -latomic -ldl -lrt -Wl,--pop-state
$(B)/set-readonly: $(B)/obj/cowfs/attach/set_readonly.o $(B)/obj/cowfs/base/program.o
$(B)/set-readonly: ALL_LIBS :=
$(HELPERS): $(B)/%.cowfs: $(B)/obj/cowfs/attach/%.o
$(CARDSIM): $(B)/obj/lab/sim/cardsim.o
$(MEASURE): $(B)/obj/tools/measure/measure_main.o
$(MEASURE): LIBS := -lm

$(CARDSIM) $(MEASURE) $(BENCH_BIN) $(TEST_BIN) $(LIBFUZZER): $(B)/liblab.a
$(LINKED) $(LIBFUZZER): $(B)/libcowfs.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $(if $(filter $@,$(PROGRAMS)),-Wl$(comma)-Map=$@.map) -o $@ $(filter %.o,$^) $(filter %/liblab.a,$^) $< $(ALL_LIBS) $(LIBS)

# ---- install ----

programs: $(PROGRAMS)

FOLDERS = $(sort $(sbindir) $(if $(SIM),$(bindir)) $(mountdir) $(patsubst %,$(mandir)/man%,1 5 7 8) $(docdir) $(libdir) \
	$(if $(UNITS),$(unitdir)) $(bashdir) /etc/cowfs $(foreach f,$(SHIP),$(patsubst %/,%,$(dir $(word 2,$(subst :, ,$f))))))

# Below a DESTDIR every folder is ours. Elsewhere those that were missing are noted, for uninstall.
install: programs
	$(Q)new=$$([ -n "$(DESTDIR)" ] || for d in $(FOLDERS); do while [ ! -d "$$d" ]; do echo "$$d" && d=$${d%/*}; done; done); \
	install -d $(addprefix $(DESTDIR),$(FOLDERS)) && { [ -z "$$new" ] || echo "$$new" >>$(libdir)/folders; }
	$(Q)install -m 755 $(if $(STRIP),-s --strip-program=$(STRIP)) $(PROGS) $(HELPERS) $(DESTDIR)$(sbindir)/
	$(if $(SIM),$(Q)install -m 755 $(if $(STRIP),-s --strip-program=$(STRIP)) $(CARDSIM) $(DESTDIR)$(bindir)/)
	$(Q)install -m 755 $(if $(STRIP),-s --strip-program=$(STRIP)) $(BOOT) $(DESTDIR)$(libdir)/
	$(if $(TOOLS),$(Q)install -m 755 $(if $(STRIP),-s --strip-program=$(STRIP)) $(MEASURE) $(DESTDIR)$(libexecdir)/)
	$(Q)for h in $(notdir $(HELPERS)); do [ $(DESTDIR)$(mountdir) -ef $(DESTDIR)$(sbindir) ] || \
		ln -sf $(sbindir)/$$h $(DESTDIR)$(mountdir)/$$h || exit 1; done
	$(Q)for m in $(MAN); do install -m 644 $$m $(DESTDIR)$(mandir)/man$${m##*.}/ || exit 1; done
	$(Q)ln -sf mount.cowfs.8 $(DESTDIR)$(mandir)/man8/umount.cowfs.8
	$(Q)install -m 644 systemd/cowfs.conf.example $(DESTDIR)$(docdir)/
	$(Q)install -m 644 cowfs/cli/completion.bash $(DESTDIR)$(bashdir)/cowctl
	$(if $(SIM),$(Q)install -m 644 lab/sim/cardsim.bash $(DESTDIR)$(bashdir)/cowfs-cardsim)
	$(Q)for f in $(SHIP); do from=$${f%%:*} mode=$${f##*:} to=$${f#*:}; to=$${to%:*}; \
		sed '$(PLACES)' $$from >$(DESTDIR)$$to && chmod $$mode $(DESTDIR)$$to || exit 1; done
	$(Q)for u in $(UNITS); do sed '$(PLACES)' $$u >$(DESTDIR)$(unitdir)/$${u##*/} && \
		chmod 644 $(DESTDIR)$(unitdir)/$${u##*/} || exit 1; done
	$(Q)[ -n "$(DESTDIR)" ] || printf '%s\n' "installed to $(prefix); nothing is protected yet. Next:" \
		"  cowctl setup --dry-run    a system that runs from its card: what would be done; then: cowctl setup" \
		"  cowctl card               data cards that could be protected, each with its next command" \
		"  man cowctl, man cowfs-setup" \
		"  make uninstall            removes it again"

uninstall:
	rm -f $(PROGS:$(B)/%=$(DESTDIR)$(sbindir)/%) $(HELPERS:$(B)/%=$(DESTDIR)$(sbindir)/%) $(CARDSIM:$(B)/%=$(DESTDIR)$(bindir)/%) \
		$(HELPERS:$(B)/%=$(DESTDIR)$(mountdir)/%) $(patsubst $(B)/%,$(DESTDIR)$(libdir)/%,$(BOOT)) $(DESTDIR)$(libexecdir)/$(notdir $(MEASURE)) \
		$(foreach m,$(MAN),$(DESTDIR)$(mandir)/man$(lastword $(subst ., ,$(m)))/$(notdir $(m))) \
		$(DESTDIR)$(mandir)/man8/umount.cowfs.8 $(DESTDIR)$(docdir)/cowfs.conf.example $(DESTDIR)$(bashdir)/cowctl $(DESTDIR)$(bashdir)/cowfs-cardsim \
		$(UNITS:systemd/%=$(DESTDIR)$(unitdir)/%) \
		$(foreach f,$(SHIP),$(DESTDIR)$(word 2,$(subst :, ,$f)))
	if [ -n "$(DESTDIR)" ]; then \
		cd $(DESTDIR) && for d in $(FOLDERS:/%=%); do rmdir -p "$$d" || :; done; \
	elif [ -e $(libdir)/folders ]; then \
		new=$$(sort -ru $(libdir)/folders) && rm $(libdir)/folders && for d in $$new; do rmdir "$$d" || :; done; \
	fi 2>/dev/null

# ---- Debian packages ----

# An ordinary build in a copy of the tree; dpkg-buildpackage names packages that are missing. ARCH=arm64 builds for
# another architecture, without tests. The options of this make are not those of that build.
DEB := build/deb
DEB_COPY := $(DEB)/cowfs-$(VERSION)
deb:
	$(Q)rm -rf $(DEB) && mkdir -p $(DEB_COPY) && tar -cf - --exclude-vcs --exclude='./build' --exclude='./build-*' . | \
		tar -xf - -C $(DEB_COPY)
	$(Q)cd $(DEB_COPY) && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL $(if $(CROSS),DEB_BUILD_OPTIONS="nocheck $$DEB_BUILD_OPTIONS") \
		dpkg-buildpackage -b -us -uc -Jauto $(if $(CROSS),-a$(CROSS) -Pcross$(comma)nocheck)
	$(Q)$(if $(CROSS),DEB_HOST_ARCH=$(CROSS) DEB_HOST_MULTIARCH=$(MULTIARCH)) packaging/sbom $(DEB_COPY) >$(DEB)/cowfs.cdx.json
	@ls -1 $(DEB)/*.deb $(DEB)/*.json

# ---- a release: docs/PACKAGING.md ----

# The same commit gives the same bytes.
DIST := build/dist/cowfs-$(VERSION).tar.gz
GIT   = git -c safe.directory=$(CURDIR)
dist:
	$(Q)[ -e .git ] || { echo "dist: this is not a clone of the repository" >&2; exit 1; }
	$(Q)changed=$$($(GIT) status --porcelain) || exit; [ -z "$$changed" ] || { printf 'dist: not committed:\n%s\n' "$$changed" >&2; exit 1; }
	$(Q)rm -rf build/dist && mkdir -p build/dist && $(GIT) -c tar.umask=0022 -c core.autocrlf=false \
		archive --prefix=cowfs-$(VERSION)/ -o build/dist/tar HEAD && gzip -9n <build/dist/tar >$(DIST) && rm build/dist/tar
	@ls -1 $(DIST)

# Tarball, packages and lists of parts as they are published, with their digests, signed. Packages that have not passed
# check-debs are made and checked first.
release: dist
	$(Q)[ -r "$(KEY)" ] || { echo "release: say which key of minisign signs: KEY=FILE" >&2; exit 2; }
	$(Q)$(MAKE) --no-print-directory check-debs
	$(Q)rm -rf build/release && mkdir -p build/release && cp $(DIST) build/release/ && for p in $(subst :,-,$(DEBS)); do \
		cp -r build/debs/$$p build/release/ || exit 1; done
	$(Q)packaging/sign build/release $(KEY) "cowfs $(VERSION)"
	@ls -1 build/release

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)

clean:
	rm -rf build build-*

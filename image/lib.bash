# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# What disk images with cowfs inside are made of, for image/build and the guests of tests/vm. No mount of an image, no
# boot loader installed by its own tool: file systems are filled by mke2fs -d, GRUB's parts are put at their places.
#
#	rootfs_tar SUITE FILE PACKAGE...	a Debian, kept as FILE; made once
#	kernel_tar SUITE		prints a FILE with the kernel of virtual machines of that suite; made once
#	chroot_run DIR COMMAND...	with /proc, /sys and a small /dev of its own, nothing left behind
#	cowfs_tree SUITE DEST		make install DESTDIR=DEST, of a build that runs in that Debian
#	disk_make FILE TREE		see there
#	foreign_exec ARCH COMMAND...	where programs of that architecture run
#
# Needs TOP, BUILD (the build folder) and CACHE (what is slow to make; may be shared between work trees). IMAGE_ARCH names
# another architecture of Debian than the machine's: its programs run by qemu-user then, which the kernel must know
# (binfmt_misc). With SOURCE_DATE_EPOCH the same trees give the same bits: image/build.

# shellcheck disable=SC2034 # named by ${!...}
IMAGE_LIBS_bookworm="libfuse3-3 libext2fs2 libcom-err2 libblkid1 libjson-c5 libinih1 libaio1 libseccomp2 libzstd1"
# shellcheck disable=SC2034
IMAGE_LIBS_trixie="libfuse3-4 libext2fs2t64 libcom-err2 libblkid1 libjson-c5 libinih1 libaio1t64 libseccomp2 libzstd1"
# shellcheck disable=SC2034
IMAGE_LIBS_testing=$IMAGE_LIBS_trixie
IMAGE_TOOLS="build-essential pkg-config"
IMAGE_DEV="libfuse3-dev libext2fs-dev comerr-dev libblkid-dev libjson-c-dev libinih-dev libaio-dev libseccomp-dev libzstd-dev linux-libc-dev"

# Where disk_make puts the image of a root (LOWER_FS), and the configuration of such a root.
LOWER=PARTUUID=c0ffee00-03
# shellcheck disable=SC2034
LOWER_CONF="compose = overlay
lower = $LOWER
"

die() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# Only what takes a while is told, and only to a person.
tell() {
	[ "${QUIET-}" ] || echo "${0##*/}: $*" >&2
}

suite_of() {
	case $1 in
	debian13* | pios13*) echo trixie ;;
	debian12* | pios*) echo bookworm ;;
	testing*) echo testing ;;
	*) die "no Debian is called $1" ;;
	esac
}

# What fstab and root= of that guest call the root.
root_name() {
	case $1 in
	*-luks*) echo /dev/mapper/root ;;
	*-lvm*) echo /dev/mapper/vg-root ;;
	*-md*) echo LABEL=root ;;
	*) echo PARTUUID=c0ffee00-02 ;;
	esac
}

image_arch() { echo "${IMAGE_ARCH:-$(dpkg --print-architecture)}"; }

# The serial line of a virtual machine of that architecture.
image_console() {
	case $(image_arch) in
	arm*) echo ttyAMA0 ;;
	*) echo ttyS0 ;;
	esac
}

arch_runs() { arch-test "$1" >/dev/null 2>&1; }

# foreign_exec ARCH PROGRAM ARGUMENT...: starts PROGRAM again where programs of ARCH run. The kernel knows qemu-user as long as that
# mount namespace lives.
foreign_exec() {
	local arch=$1
	shift
	if [ "${IMAGE_FOREIGN-}" ] || ! type arch-test qemu-arm-static >/dev/null 2>&1; then
		die "programs for $arch do not run here: apt-get install arch-test qemu-user-static"
	fi
	# shellcheck disable=SC2016 # for the inner shell
	IMAGE_FOREIGN=1 exec unshare --mount --propagation private sh -c '
		at=/proc/sys/fs/binfmt_misc
		[ -e $at/register ] || mount -t binfmt_misc binfmt_misc $at || exit 1
		for n in aarch64 arm riscv64; do
			# another one may do the same now
			[ -e $at/qemu-$n ] || cat /usr/lib/binfmt.d/qemu-$n.conf >$at/register || [ -e $at/qemu-$n ] || exit 1
		done
		exec "$@"' sh "$@"
}

# ---- Debian ----

# The mirror that this machine uses, so that a proxy or a copy in the house is used here, too. IMAGE_MAIN_ONLY=1: without updates
# and security, for a mirror whose index of these is not whole for some architecture.
apt_sources() {
	local suite=${1%-backports} main security
	# shellcheck disable=SC2016 # apt's variables
	main=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
		awk '$3 == "main" && $2 ~ /^(bookworm|trixie)$/ { print $1; exit }')
	# shellcheck disable=SC2016
	security=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
		awk '$3 == "main" && $2 ~ /-security$/ { print $1; exit }')
	[ "$main" ] || die "apt knows no mirror of Debian 12 or 13: apt-get update"
	echo "deb $main $suite ${IMAGE_COMPONENTS:-main}"
	[ "$suite" != sid ] && [ -z "${IMAGE_MAIN_ONLY-}" ] || return 0
	echo "deb $main $suite-updates main"
	[ -z "$security" ] || echo "deb $security $suite-security main"
	[ "$suite" = "$1" ] || echo "deb $main $1 main"
}

rootfs_tar() {
	local suite=$1 file=$2 options=() work
	shift 2
	[ -s "$file" ] && return 0
	tell "Debian $suite${IMAGE_ARCH:+ for $IMAGE_ARCH} from packages, once (kept in ${file#"$TOP"/})"
	work=$(mktemp -d "$CACHE/rootfs.XXXXXX")
	mapfile -t options < <(apt-config dump | sed -n 's/^Acquire::.*\(Proxy\|Check-Valid-Until\) ".*/--aptopt=&/p')
	apt_sources "$suite" >"$work/sources"
	[ -z "${IMAGE_ARCH-}" ] || options+=("--architectures=$IMAGE_ARCH")
	# that of Debian 13 does not merge a small Debian 12 by itself
	options+=(--hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr)
	[ -z "${SETUP_HOOK-}" ] || options+=("--setup-hook=$SETUP_HOOK")
	mmdebstrap -q --variant="${VARIANT-minbase}" --format=tar "${options[@]}" --include="$(printf '%s,' "$@" | sed 's/,$//')" \
		--aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
		"${suite%-backports}" "$work/tar" "$work/sources" >"$work/log" 2>&1 ||
		{ tail -20 "$work/log" >&2; rm -rf "$work"; die "mmdebstrap $suite failed"; }
	mv "$work/tar" "$file"
	rm -rf "$work"
}

# The kernel of virtual machines, where Debian has one for that architecture.
kernel_package() {
	case $(image_arch) in
	amd64 | arm64) echo "linux-image-cloud-$(image_arch)" ;;
	armhf) echo linux-image-armmp ;;
	*) echo "linux-image-$(image_arch)" ;;
	esac
}

# Unpacked, not installed: no script of a package runs, so the suite may be older or newer than the tree.
kernel_tar() { # SUITE[@VERSION]
	local file=$CACHE/kernel-$1${IMAGE_ARCH:+-$IMAGE_ARCH}.tar suite=${1%@*} package
	if [ "$1${IMAGE_ARCH-}" = trixie ]; then # that of the guest debian13
		IMAGE_PACKAGES='' debian_fetch debian13
		IMAGE_PACKAGES='' debian_tar debian13
		return
	fi
	package=$(kernel_package)
	[ "$suite" = "$1" ] || package=linux-image-${1#*@}-${package#linux-image-}
	VARIANT=extract rootfs_tar "$suite" "$file" "$package/$suite"
	echo "$file"
}

# Puts the kernel of another suite into a tree, instead of the one that is there. Its place depends on the age of the package.
kernel_put() { # TREE SUITE[@VERSION]
	local tree=$1 kernel=$1.kernel tar modules image version
	tar=$(kernel_tar "$2")
	rootfs_unpack "$tar" "$kernel"
	for modules in "$kernel"/{,usr/}lib/modules/*; do
		[ ! -d "$modules" ] || break
	done
	version=${modules##*/}
	rm -rf "${tree:?}"/{boot,usr/lib/modules}/*
	for image in "$kernel/boot/vmlinuz-$version" "$modules/vmlinuz"; do
		[ ! -e "$image" ] || mv "$image" "$tree/boot/vmlinuz-$version"
	done
	for image in "$kernel/boot/config-$version" "$modules/config"; do
		[ ! -e "$image" ] || cp "$image" "$tree/boot/config-$version"
	done
	mv "$modules" "$tree/usr/lib/modules/"
	rm -rf "$kernel"
	: >"$tree/boot/initrd.img-$version" # to be made: update-initramfs renews only what is there
	depmod -b "$tree" "$version"
}

rootfs_unpack() {
	mkdir -p "$2"
	tar -C "$2" --numeric-owner --xattrs --xattrs-include='*' -xf "$1"
}

# CHROOT_BIND: a folder to mount on /mnt.
chroot_run() {
	# shellcheck disable=SC2016 # for the inner shell
	unshare --mount --propagation private sh -c '
		[ -z "$CHROOT_BIND" ] || { mkdir -p "$2/mnt" && mount --bind "$CHROOT_BIND" "$2/mnt"; } || exit 1
		exec "$@"' sh "$TOP/systemd/in-tree" "$@"
}

# ---- cowfs ----

# The host's own programs if it is that Debian; else built there, in a folder build-SUITE[-ARCH] beside build. Libraries of
# two architectures cannot all be installed at a time, so each has a chroot of its own. Debian testing gets those of Debian 13.
# Others that want the same wait.
cowfs_tree() {
	local suite=${1/testing/trixie} dest=$2 arch=${IMAGE_ARCH-} here tools=$IMAGE_TOOLS library
	# shellcheck disable=SC1091
	here=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
	rm -rf "$dest"
	mkdir -p "$dest"
	if [ "$suite$arch" = "$here" ]; then
		make -s --no-print-directory -C "$TOP" B="$BUILD" install DESTDIR="$dest" >/dev/null || die "make install failed"
		return
	fi
	local name=build-$suite${arch:+-$arch} lock
	local chroot=$CACHE/$name
	exec {lock}>"$chroot.lock"
	flock "$lock"
	[ -z "$arch" ] || tools+=" gcc-$(dpkg-architecture -f -a "$arch" -qDEB_HOST_GNU_TYPE 2>/dev/null | tr _ -)"
	for library in $IMAGE_DEV; do
		tools+=" $library${arch:+:$arch}"
	done
	# made anew when the list of tools has changed
	if [ "$(cat "$chroot/.complete" 2>/dev/null)" != "$tools" ]; then
		# shellcheck disable=SC2086 # words
		IMAGE_ARCH=$(dpkg --print-architecture)${arch:+,$arch} rootfs_tar "$suite" "$chroot.tar" $tools
		rm -rf "$chroot"
		rootfs_unpack "$chroot.tar" "$chroot"
		rm -f "$chroot.tar"
		echo "$tools" >"$chroot/.complete"
	fi
	tell "building cowfs for $suite${arch:+, $arch}"
	CHROOT_BIND=$TOP chroot_run "$chroot" make -s --no-print-directory -C /mnt -j"$(nproc)" B="$name" V= ${arch:+"ARCH=$arch"} \
		install DESTDIR="/mnt/$name/dest" >"$BUILD/$name.log" 2>&1 ||
		{ tail -20 "$BUILD/$name.log" >&2; die "cowfs does not build in $suite"; }
	cp -a "$TOP/$name/dest/." "$dest/"
	rm -rf "$TOP/$name/dest"
	exec {lock}>&-
}

# ---- disks ----

# disk_make FILE TREE: a disk with an MBR, GRUB, /boot (ext4, of TREE.boot) and a root file system (of TREE). By variable:
#	DISK_MIB, BOOT_MIB	sizes; BOOT_MIB=0: /boot is in TREE
#	BOOT_FS			vfat: the partition of a Raspberry Pi's firmware instead of /boot
#	EFI_MIB			of a third partition for EFI, behind /boot, with TREE.efi or GRUB in it (default: none)
#	BOOT_START		first sector of /boot (default: at 4 MiB)
#	ROOT_START		first sector of the root partition (default: right behind /boot)
#	ROOT_FS			ext4 (default), xfs or f2fs; ROOT_FEATURES: more for mke2fs -O
#	LOWER_FS		squashfs or erofs: TREE becomes an image in a third partition, in front of the root partition, which
#				is empty then
#	LOG_MIB			room behind the file system for the log of cowfs; 0: none, and no log
#	JOURNAL_MIB		of ext4 (default 8)
#	FORMAT_OPTIONS		for cowctl prepare
#	BELOW, BELOW_MIB	a command that turns the file of the root, its argument, into that of the partition, in place, and the
#				room that this takes
# The root partition has the PARTUUID c0ffee00-02, and if it is ext4 the label "root".
disk_make() {
	local file=$1 tree=$2 boot_start=${BOOT_START:-8192} efi_start lower_start lower_mib=0 root_start root_sectors
	local log_mib=${LOG_MIB-48} work boot_tree=$tree.boot
	efi_start=$((boot_start + BOOT_MIB * 2048))
	work=$(mktemp -d "$BUILD/disk.XXXXXX")
	if [ "${LOWER_FS-}" ]; then
		lower_make "$work/lower" "$tree"
		lower_mib=$(($(stat -c %s "$work/lower") / 1048576 + 2))
		tree=$work/empty
		mkdir "$tree"
	fi
	lower_start=$((efi_start + ${EFI_MIB:-0} * 2048))
	root_start=${ROOT_START:-$((lower_start + lower_mib * 2048))}
	root_sectors=$(((DISK_MIB * 2048 - root_start) / 8 * 8))
	rm -f "$file"
	truncate -s "${DISK_MIB}M" "$file"
	{
		printf 'label: dos\nlabel-id: 0xc0ffee00\n'
		[ "$BOOT_MIB" = 0 ] || echo "1 : start=$boot_start, size=$((BOOT_MIB * 2048)), type=$([ "${BOOT_FS-}" = vfat ] && echo c || echo 83), bootable"
		echo "2 : start=$root_start, size=$root_sectors, type=83$([ "$BOOT_MIB" != 0 ] || echo ', bootable')"
		[ "${EFI_MIB:-0}" = 0 ] || echo "3 : start=$efi_start, size=$((EFI_MIB * 2048)), type=ef"
		[ "$lower_mib" = 0 ] || echo "3 : start=$lower_start, size=$((lower_mib * 2048)), type=83"
	} | sfdisk -q "$file" || die "sfdisk failed"
	[ "$(image_arch)" != amd64 ] || grub_put "$file" "$work"
	[ "$BOOT_MIB" = 0 ] || boot_make "$file" "$boot_start" "$boot_tree" "$work/boot"
	[ "${EFI_MIB:-0}" = 0 ] || efi_make "$file" "$efi_start" "$work" "$2.efi"
	[ "$lower_mib" = 0 ] || disk_place "$work/lower" "$file" "$lower_start"
	root_sectors=$((root_sectors - ${BELOW_MIB:-0} * 2048))
	truncate -s $((root_sectors * 512)) "$work/root"
	root_fs_make "$work/root" "$tree" $((root_sectors / 2048 - log_mib))
	if [ "$log_mib" -gt 0 ]; then
		# shellcheck disable=SC2086 # words
		"$BUILD/cowctl" prepare ${FORMAT_OPTIONS-} "$work/root" >/dev/null || die "cowctl prepare failed"
	fi
	${BELOW:+"$BELOW" "$work/root"}
	disk_place "$work/root" "$file" "$root_start"
	rm -rf "$work"
}

lower_make() { # FILE TREE
	case $LOWER_FS in
	squashfs) set -- mksquashfs "$2" "$1" -quiet -no-progress -comp "${LOWER_COMPRESSION:-zstd}" ;;
	erofs) set -- mkfs.erofs -zlz4hc "$1" "$2" ;;
	*) die "no image is called $LOWER_FS" ;;
	esac
	"$@" >"$BUILD/lower.log" 2>&1 || die "$1 failed: $(tail -n 1 "$BUILD/lower.log")"
}

boot_make() { # FILE SECTOR TREE WORK
	if [ "${BOOT_FS-}" = vfat ]; then
		vfat_make "$4" "$BOOT_MIB" "$3" || die "no firmware partition"
		disk_place "$4" "$1" "$2"
		return
	fi
	truncate -s "${BOOT_MIB}M" "$4"
	# a small one has a small journal, and that needs small blocks
	# shellcheck disable=SC2046 # words
	mke2fs -q -F -t ext4 -L boot -b $((BOOT_MIB < 64 ? 1024 : 4096)) -m 0 -J "size=$((BOOT_MIB < 64 ? 1 : 4))" \
		-E lazy_itable_init=0$(ext_same c0ffee00-0000-4000-8000-000000000001) -d "$3" "$4" "${BOOT_MIB}M" ||
		die "/boot does not fit into $BOOT_MIB MiB"
	ext_times "$4"
	disk_place "$4" "$1" "$2"
}

efi_make() { # FILE SECTOR WORK TREE
	local tree=$4
	if [ ! -d "$tree" ]; then
		tree=$3/efi-tree
		mkdir -p "$tree/EFI/BOOT"
		# /boot is on the disk that this program comes from, whatever its number
		cat >"$3/early.cfg" <<-'END'
			regexp --set=1:disk '^([^,]*),' $root
			set root=$disk,msdos1
			set prefix=($root)/grub
			configfile $prefix/grub.cfg
		END
		grub-mkimage -O x86_64-efi -o "$tree/EFI/BOOT/BOOTX64.EFI" -c "$3/early.cfg" -p /EFI/BOOT part_msdos part_gpt ext2 fat linux \
			normal configfile serial terminal echo test sleep minicmd regexp all_video || die "grub-mkimage failed"
	fi
	vfat_make "$3/efi" "$EFI_MIB" "$tree" || die "no partition for EFI"
	disk_place "$3/efi" "$1" "$2"
}

vfat_make() { # FILE MIB TREE
	local same=() name
	if [ "${SOURCE_DATE_EPOCH-}" ]; then
		same=(--invariant -i c0ffee01)
		find "$3" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	fi
	mkfs.vfat "${same[@]}" -C "$1" $(($2 * 1024)) >/dev/null || return
	find "$3" -mindepth 1 -printf '%P\n' | LC_ALL=C sort | while read -r name; do
		if [ -d "$3/$name" ]; then
			TZ=UTC mmd -i "$1" "::$name"
		else
			TZ=UTC mcopy -m -i "$1" "$3/$name" "::$name"
		fi || return
	done
}

# More for mke2fs -E: not by chance, but UUID.
ext_same() {
	[ -z "${SOURCE_DATE_EPOCH-}" ] || echo ",hash_seed=$1 -U $1"
}

# mke2fs -d takes over when the files of the tree were changed and read, which is when it was unpacked.
ext_times() { # FILE
	[ "${SOURCE_DATE_EPOCH-}" ] || return 0
	dumpe2fs "$1" 2>/dev/null | awk -v time="@$SOURCE_DATE_EPOCH" '
		/^Inodes per group:/ { per = $4 }
		/^Group [0-9]+:/ { first = ($2 + 0) * per + 1 }
		/^  Free inodes:/ {
			sub(/^  Free inodes: */, "")
			n = split($0, free, ", ")
			inode = first
			for (i = 1; i <= n + 1; i++) {
				split(i <= n ? free[i] : first + per, range, "-")
				for (; inode < range[1]; inode++)
					if (inode == 2 || inode > 10)
						for (f = 1; f <= 4; f++)
							print "set_inode_field <" inode "> " substr("acmcr", f, 1 + (f == 4)) "time " time
				inode = (range[2] ? range[2] : range[1]) + 1
			}
		}' >"$1.times"
	debugfs -w -f "$1.times" "$1" >/dev/null 2>"$1.errors" || die "debugfs failed"
	rm -f "$1.times" "$1.errors"
}

# Copies what is not zero to a sector of FILE.
disk_place() {
	dd if="$1" of="$2" bs=64K oflag=seek_bytes seek=$(($3 * 512)) conv=notrunc,sparse status=none
}

root_fs_make() {
	local part=$1 tree=$2 fs_mib=$3
	case ${ROOT_FS:-ext4} in
	ext4)
		# shellcheck disable=SC2046 # words
		mke2fs -q -F -t ext4 -L root -b 4096 -J "size=${JOURNAL_MIB:-8}" ${ROOT_FEATURES:+-O "$ROOT_FEATURES"} \
			-E lazy_itable_init=0,nodiscard$(ext_same c0ffee00-0000-4000-8000-000000000002) \
			-d "$tree" "$part" "${fs_mib}M" || die "mke2fs failed"
		ext_times "$part"
		;;
	xfs)
		mkdir "$part.mnt"
		mkfs.xfs -q -f -L root -d "size=${fs_mib}m" "$part" || die "mkfs.xfs failed"
		# shellcheck disable=SC2016 # for the inner shell
		unshare --mount --propagation private sh -c '
			mount -t xfs -o loop "$1" "$1.mnt" && cp -a "$2/." "$1.mnt/" && umount "$1.mnt"' \
			sh "$part" "$tree" || die "copying to xfs failed"
		;;
	f2fs)
		mkfs.f2fs -q -f -l root "$part" $((fs_mib * 2048)) >/dev/null || die "mkfs.f2fs failed"
		sload.f2fs -P -f "$tree" "$part" >/dev/null || die "sload.f2fs failed"
		;;
	*)
		die "no root file system is called $ROOT_FS"
		;;
	esac
}

# GRUB where its boot sector looks for it without being told: right behind the MBR.
grub_put() {
	local file=$1 core=$2/core.img from=/usr/lib/grub/i386-pc
	grub-mkimage -O i386-pc -d "$from" -o "$core" -p '(,msdos1)/grub' \
		biosdisk part_msdos ext2 linux normal configfile serial terminal echo test sleep minicmd loadenv ||
		die "grub-mkimage failed"
	dd if="$from/boot.img" of="$file" bs=1 count=440 conv=notrunc status=none
	dd if="$core" of="$file" bs=512 seek=1 conv=notrunc status=none
}

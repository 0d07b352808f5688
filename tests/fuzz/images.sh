#!/bin/sh
# SPDX-License-Identifier: MIT
# images.sh DIR: makes the file systems that fuzz targets change, KIND-NUMBER in DIR. The same programs make the same images.
set -eu
export PATH="$PATH:/sbin:/usr/sbin" E2FSPROGS_FAKE_TIME=1600000000
UUID=00112233-4455-6677-8899-aabbccddeeff
rm -rf "$1" && mkdir -p "$1/tree" "$1/many" && cd "$1"

n=0
image() { # KIND SIZE COMMAND...: the command makes a file system in the file "image"
	kind=$1 size=$2
	shift 2
	rm -f image && truncate -s "$size" image
	"$@" image >log 2>&1 || { echo "images.sh: cannot make $kind-$n: $*" >&2 && cat log >&2 && exit 1; }
	cp --sparse=always image "$kind-$n" && n=$((n + 1))
}

mkdir -p tree/folder/deep/er tree/many
echo x >tree/one
ln tree/one tree/two
ln -s "$(printf %0100d 1)" tree/link
for i in $(seq 0 2 20); do printf x | dd of=tree/folder/holes bs=4k seek="$i" conv=notrunc status=none; done
for i in $(seq 60); do : >"tree/many/a-name-that-is-long-enough-$i"; done
printf x >tree/folder/deep/er/file
printf x | dd of=tree/folder/far bs=1k seek=70000 status=none
ext() {
	size=$1
	shift
	image ext "$size" mke2fs -q -F -d tree -U $UUID -E hash_seed=$UUID "$@"
}
ext 3M -t ext4 -b 1024 -g 1024 -G 2 -J size=1 -N 128
ext 2M -t ext4 -b 4096 -O ^has_journal -N 128
ext 1M -t ext2 -b 1024 -g 256 -N 128
ext 2560k -t ext3 -b 1024 -J size=1 -I 128 -N 128
ext 2M -t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit,^has_journal -g 512 -N 128
ext 1M -t ext4 -b 1024 -O meta_bg,^resize_inode,^has_journal -g 256 -N 128
ext 2M -t ext4 -b 1024 -O bigalloc,^has_journal -C 4096 -N 128
ext 6M -t ext4 -b 2048 -J size=2 -O ^flex_bg,sparse_super2 -N 128

# with a journal to be replayed; some blocks of it are revoked, some are escaped
dirty() {
	mke2fs -q -F -d tree -U $UUID -E hash_seed=$UUID -N 128 "$@"
	{ for i in 1 2 3 4 5 6 7 8; do printf '\300\073\071\230%04092d' $i; done; } >payload
	printf '%s\n' jo "jw -b 2400-2407 payload" "jw -b 2403,2405,2406 -r 2401-2402 payload" "jw -b 2401,2404 payload" "jw -r 2405" jc |
		debugfs -w -f - image
}
image ext 2560k dirty -t ext3 -b 1024 -J size=1 -I 128
image ext 10M dirty -t ext4 -b 4096 -J size=4 -O ^metadata_csum
image ext 3M dirty -t ext4 -b 1024 -J size=1

n=0
for i in $(seq 400); do head -c $((i * 25)) /dev/zero >"many/a-name-that-is-long-enough-$i"; done
image btrfs 24M mkfs.btrfs -q -f -r many -M -b 24M
image btrfs 100M mkfs.btrfs -q -f -r many -m single -d single -n 4096 -b 100M
image btrfs 150M mkfs.btrfs -q -f -r many -m dup -n 16384 -b 150M

n=0
image xfs 330M mkfs.xfs -q -f -m uuid=$UUID -d agcount=4
image xfs 330M mkfs.xfs -q -f -m uuid=$UUID,rmapbt=1,reflink=1 -b size=1024 -d agcount=2
rm -rf tree many log image payload

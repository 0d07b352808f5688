# shellcheck shell=sh disable=SC2016,SC2034,SC2154,SC3028
# SPDX-License-Identifier: MIT
# Podman with overlay on the root: images are made and deleted while a container writes, and the power goes at any write of the
# commit (long form: 20 times, short: 4). Offline: the images of generation N or N+1, bit by bit; the last card is booted, and its
# images run. Then a squashfs that lies on the root and whose programs run, across a commit and a shutdown, as those of snaps do.
# guests: debian13-initramfs-above
# short:
MEM=1024 DISK_MIB=2048 LIMIT=1800 STEP_LIMIT=1700
KILLED=1
# what takes time at boot
APPEND="systemd.mask=podman-restart.service systemd.mask=podman-auto-update.timer systemd.mask=nfs-server.service"

# What differs from docker.sh: the program, and in its store what does not change while a container writes
ENGINE=podman STORE=/var/lib/containers/storage
IMAGE_FILES="overlay-images overlay-layers overlay"

engine_start() { :; }
engine_waited() { :; }
engine_checks() {
	is "the storage driver" "$(podman info --format '{{.Store.GraphDriverName}} {{index .Store.GraphStatus "Backing Filesystem"}}')" \
		"overlay extfs"
}

store_checked() { must podman system check; }

in_container() { must $ENGINE run --network none "$@"; }

# An image with a layer of its own, which hides a file of the base
image_make() {
	in_container --name "c$1" base sh -c "echo $1 >/gen; dd if=/dev/urandom of=/random bs=64k count=32; rm /blob"
	must $ENGINE commit "c$1" "gen$1"
	must $ENGINE rm "c$1"
}

# All files of images, without what the container is writing
store_sums() {
	upper=$($ENGINE inspect writer --format '{{.GraphDriver.Data.UpperDir}}') || fail "no writer"
	# shellcheck disable=SC2086 # folders; those of images and layers, and in the last one the layers' files
	(cd $STORE && find ${IMAGE_FILES% *} "${IMAGE_FILES##* }"/*/diff -type f ! -path "${upper#"$STORE/"}/*" -print0 |
		xargs -0 sha256sum)
}

images() { $ENGINE images --no-trunc --format '{{.ID}} {{.Repository}}' | sort; }

state_write() {
	store_sums >/srv/state/sums
	images >/srv/state/images
	echo "$1" >/srv/state/n
	say "generation $1: $(wc -l </srv/state/sums) files of images"
}

step_1() {
	protected || fail "the root is $(root_device)"
	engine_start
	engine_waited
	tree=/tmp/tree # /run is noexec
	mkdir -p $tree/bin /srv/state
	cp /usr/bin/busybox $tree/bin/
	must chroot $tree /bin/busybox --install -s /bin
	dd if=/dev/urandom of=$tree/blob bs=64k count=64 2>/dev/null
	tar -C $tree -cf /tmp/tree.tar .
	must $ENGINE import /tmp/tree.tar base
	rm -r $tree /tmp/tree.tar
	engine_checks
	image_make 1
	in_container -d --name writer base sh -c 'while :; do n=$((n + 1)); echo $n >/n.new; mv /n.new /n; sleep 0.1; done'
	state_write 1
	must cowctl commit root --checkpoint
	must cowctl inhibit root --for 60m
	image_make 2
	must $ENGINE rmi gen1
	state_write 2
	mark ready
	sleep 4
	END=none
	cowctl uninhibit root
	must cowctl commit root
	verdict ok
	sync
	reboot -ff
}

host_during() {
	[ "$1" = 1 ] || return 0
	wait_mark ready && vm_save
}

judge_cut() {
	card_extract "$WORK/part"
	offline_check "$WORK/part"
	"$BUILD/cowctl" release "$WORK/part" >/dev/null || fail "cowctl release"
	rm -rf "$WORK/store"
	mkdir "$WORK/store"
	folders=$(for folder in $IMAGE_FILES; do printf '%s ' "$STORE/$folder"; done)
	debugfs -R "rdump /srv/state $folders $WORK/store" "$WORK/part" >"$WORK/rdump.out" 2>&1
	gen=$(cat "$WORK/store/state/n")
	(cd "$WORK/store" && sha256sum -c --quiet state/sums) >"$WORK/sums.out" 2>&1 ||
		fail "images of generation $gen: $(head -n 3 "$WORK/sums.out")"
	eval "seen_$gen=\$((seen_$gen + 1))"
}

host_after() {
	[ "$1" != 2 ] || grep -aq 'cowfs: root: everything is on the card' "$WORK/console-2" || fail "the shutdown has not committed"
	[ "$1" = 1 ] || return 0
	cuts=4 seen_1=0 seen_2=0
	[ -z "$LONG" ] || cuts=20
	vm_uncut
	judge_cut
	[ "$seen_2" = 1 ] || fail "nothing was committed"
	i=0
	while [ $i -lt $cuts ]; do
		i=$((i + 1))
		at=$((RANDOM % (writes + 2)))
		# every second one around the record, which comes last
		[ $((i % 2)) = 0 ] || at=$((writes - RANDOM % 4))
		vm_load
		cut_at $at
		judge_cut
	done
	say "$cuts cuts in $writes writes: $seen_1 times N, $((seen_2 - 1)) times N+1"
}

step_2() {
	protected || fail "the root is $(root_device)"
	n=$(cat /srv/state/n)
	engine_waited
	(cd $STORE && sha256sum -c --quiet /srv/state/sums) >/run/cowfs-test/out 2>&1 || fail "$(head -n 3 /run/cowfs-test/out)"
	is "images" "$(images)" "$(cat /srv/state/images)"
	store_checked
	is "generation inside" "$($ENGINE run --rm --network none "gen$n" sh -c 'test ! -e /blob && test -s /random && cat /gen')" "$n"
	must $ENGINE start writer
	image_make 3
	must cowctl commit root
	images >/srv/state/images
	squashed
	say "generation $n"
}

# What snapd does with each snap
squashed() {
	mkdir -p /mnt/app
	must mksquashfs /usr/bin/busybox "/usr/bin/$ENGINE" /srv/app.squashfs -comp zstd -Xcompression-level 1 -quiet -no-progress
	must mount -o loop,ro /srv/app.squashfs /mnt/app
	/mnt/app/busybox sleep 1000 &
	sum=$(sha256sum <"/mnt/app/$ENGINE")
	must cowctl commit root
	echo 3 >/proc/sys/vm/drop_caches
	is "the squashfs" "$(sha256sum <"/mnt/app/$ENGINE")" "$sum"
	echo "$sum" >/srv/state/app
}

step_3() {
	protected || fail "the root is $(root_device)"
	engine_waited
	is "images" "$(images)" "$(cat /srv/state/images)"
	must mount -o loop,ro /srv/app.squashfs /mnt/app
	is "the squashfs" "$(sha256sum <"/mnt/app/$ENGINE")" "$(cat /srv/state/app)"
}

#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What ships an update to a root, by the documented contracts of RAUC, SWUpdate and Mender. tests/fleet has the real tools.
# seconds: 80
# turn: 3

load lib
load delta

setup() {
	cow_setup
	FLEET=$(cd "$BATS_TEST_DIRNAME/../../packaging/fleet" && pwd)
	export COWFS_CTL=$COWFS_BUILD/cowctl COWFS_SHIP=$FLEET/ship COWFS_WAIT_S=1 COWFS_TRIAL_BOOTS=2
}
teardown() { cow_teardown; }

# also by the shell of small systems
ship() { busybox sh "$FLEET/ship" "$@"; }
reboot() { power_cut; boots; }

state_is() { # STATE [TIME]
	run -0 --separate-stderr ship state "${@:2}"
	[ "$output" = "$1" ] || { echo "state: $output, not $1"; return 1; }
}

has_old() { [ "$(tree_sum "$MNT")" = "$OLD" ]; }
has_new() { [ "$(tree_sum "$MNT")" = "$NEW" ]; }

# Files that must be refused, each with what the tool's log must say. CALL is a function that gets the file.
refuses_bad_files() { # CALL
	local before f
	head -c 20000 "$T/delta" >"$T/cut"
	cp "$T/delta" "$T/flipped"
	printf damaged! | dd of="$T/flipped" bs=1 seek=9000 conv=notrunc status=none
	second_update
	before=$(image_sum "$T/card.img")
	for f in cut flipped foreign none; do
		run ! "$1" "$T/$f"
		echo "$output"
		case $f in
		cut) [[ $output == *"fetch the rest"* ]] ;;
		flipped) [[ $output == *"is damaged: fetch it again"* ]] ;;
		foreign) [[ $output == *"is for generation"*"nothing was written"* ]] ;;
		none) [[ $output == *"No such file"* || $output == *"has no file in the bundle"* || $output == *"exactly one file"* ]] ;;
		esac || return
	done
	[ "$(image_sum "$T/card.img")" = "$before" ]
	has_old
}

@test "ship: reboot, trial, accepted" {
	local time
	root_cards ext4 100 150
	state_is none
	refuses_bad_files ship_import
	state_is none
	time=$(ship import "$T/delta")
	[ "$time" = "$(status_of .offered_unix_seconds)" ]
	state_is reboot "$time"
	run -1 ship wait "$time"
	reboot
	has_new
	state_is trial "$time"
	run -1 ship wait "$time"
	[ "$output" = trial ]
	(sleep 1 && cow accept root --trial >/dev/null) &
	COWFS_WAIT_S=30 run -0 ship wait "$time"
	[ "$output" = accepted ]
	wait $!
	run -1 ship undo
	[[ $output == *"is accepted, and stays"* ]]
	reboot
	state_is accepted "$time"
	state_is none 12345
	# the same once more
	[ "$(ship import "$T/delta")" = 0 ]
	state_is accepted 0
	run -2 ship import
	detach
	run ! ship state
	[[ $output == *"the root is not protected"* ]]
}
ship_import() { ship import "$1"; }

@test "ship: what has failed stays so, over commits and power cuts" {
	local time
	root_cards ext4 100 150
	time=$(ship import "$T/delta")
	reboot
	reboot
	state_is trial "$time"
	reboot # no boot is left
	has_old
	reboot # and nobody has asked yet
	state_is failed "$time"
	touch "$MNT/more"
	cow commit root
	reboot
	[ "$(status_of .undone)" = null ]
	state_is failed "$time"
	run -1 ship wait "$time"
	[ "$output" = failed ]
	# the same update, as a whole because of the commit, and a check that now succeeds
	cow export --all "$MASTER" "$T/whole"
	[ "$(ship import "$T/whole")" = "$time" ]
	state_is reboot "$time"
	run -0 ship undo
	state_is failed "$time"
	reboot
	state_is failed "$time"
	[ "$(ship import "$T/whole")" = "$time" ]
	reboot
	cow accept root --trial
	state_is accepted "$time"
}

# ---- Mender: Documentation/update-modules-v3-file-api.md ----

# STATE: as the client calls it
module() { (cd "$T/tree" && "$FLEET/mender" "$1" "$T/tree" 2>&1); }

module_with() { # FILE
	rm -rf "$T/tree"
	mkdir -p "$T/tree/files" "$T/tree/tmp"
	[ ! -e "$1" ] || cp "$1" "$T/tree/files/"
	module ArtifactInstall || { module ArtifactRollback && module ArtifactFailure && module Cleanup && return 1; }
}

@test "mender: accepted" {
	root_cards ext4 100 150
	refuses_bad_files module_with
	[ "$(module SupportsRollback)" = Yes ]
	[ -z "$(module ProvidePayloadFileSizes)$(module SupportsAugmentedArtifacts)" ]
	module_with "$T/delta"
	[ "$(module NeedsArtifactReboot)" = Automatic ]
	run -1 module ArtifactVerifyReboot
	[[ $output == *"was not restarted"* ]]
	run -1 module ArtifactCommit
	reboot
	run -0 module ArtifactVerifyReboot
	run -1 module ArtifactCommit
	[[ $output == *"was not accepted in time"* ]]
	cow accept root --trial
	run -0 module ArtifactCommit
	run -0 module Cleanup
	run -1 module ArtifactRollback
	# an artifact that is there already needs no reboot
	module_with "$T/delta"
	[ "$(module NeedsArtifactReboot)" = No ]
	run -0 module ArtifactCommit
	touch "$T/tree/files/second"
	run -1 module ArtifactInstall
	[[ $output == *"must have exactly one file"* ]]
}

@test "mender: the trial fails, and a rollback" {
	root_cards ext4 100 150
	module_with "$T/delta"
	reboot
	reboot
	reboot
	run -1 module ArtifactVerifyReboot
	[[ $output == *"went back to the generation before"* ]]
	run -0 module ArtifactRollback
	run -0 module ArtifactVerifyRollbackReboot
	run -1 module ArtifactCommit
	has_old
	module_with "$T/delta"
	reboot
	has_new
	run -0 module ArtifactRollback
	run -0 module ArtifactRollback
	reboot
	run -0 module ArtifactVerifyRollbackReboot
	run -1 module ArtifactCommit
	has_old
	# before the reboot, too
	module_with "$T/delta"
	run -1 module ArtifactVerifyRollbackReboot
	run -0 module ArtifactRollback
	reboot
	has_old
}

# ---- RAUC: docs/reference.rst, "Slot Hooks Interface"; docs/integration.rst, "Custom bootloader backend interface" ----

rauc_install() { # FILE
	RAUC_SLOT_NAME=root.1 RAUC_SLOT_CLASS=root RAUC_SLOT_BOOTNAME=next RAUC_IMAGE_CLASS=root RAUC_IMAGE_NAME=$1 \
		"$FLEET/rauc" slot-install 2>&1
}

loader() { "$FLEET/rauc" "$@" 2>&1; }

rauc_shows() { # PRIMARY NOW NEXT
	local shown
	shown="$(loader get-primary) $(loader get-state now) $(loader get-state next)"
	[ "$shown" = "$*" ] || { echo "$shown, not $*"; return 1; }
}

@test "rauc: good after accept alone" {
	root_cards ext4 100 150
	rauc_shows now good bad
	run -0 loader set-state next bad
	refuses_bad_files rauc_install
	run -1 loader set-primary next
	rauc_install "$T/delta"
	run -0 loader set-primary next
	run -0 loader set-state next good
	rauc_shows next good good
	reboot
	has_new
	rauc_shows now bad bad
	run -1 loader set-state now good
	[[ $output == *"is not accepted yet"* ]]
	cow accept root --trial
	rauc_shows now good bad
	run -0 loader set-state now good
	run -1 loader set-state now bad
	run -1 loader set-state other good
	run -1 loader nonsense
}

@test "rauc: mark-bad, another primary, and a trial that fails" {
	root_cards ext4 100 150
	rauc_install "$T/delta"
	run -0 loader set-primary now
	rauc_shows now good bad
	reboot
	has_old
	rauc_install "$T/delta"
	reboot
	has_new
	run -0 loader set-state now bad
	reboot
	has_old
	rauc_install "$T/delta"
	reboot
	reboot
	reboot
	has_old
	rauc_shows now good bad
	state_is failed
}

# ---- SWUpdate: doc/source/sw-description.rst, "Scripts"; ustate of doc/source/suricatta.rst ----

swu() { "$FLEET/swupdate" "$@" 2>&1; }

# fw_setenv and fw_printenv -n of an environment that is not on the root
fake_env() {
	mkdir "$T/env"
	export COWFS_SETENV=$T/setenv COWFS_PRINTENV=$T/printenv
	printf '#!/bin/sh\nprintf %%s "$2" >"%s/$1"\n' "$T/env" >"$COWFS_SETENV"
	printf '#!/bin/sh\n[ "$1" = -n ] && cat "%s/$2"\n' "$T/env" >"$COWFS_PRINTENV"
	chmod +x "$COWFS_SETENV" "$COWFS_PRINTENV"
}

swu_install() { # FILE
	mkdir -p "$T/ram"
	swu preinst "$T/ram/update"
	[ ! -e "$1" ] || cp "$1" "$T/ram/update"
	run swu postinst "$T/ram/update"
	[ ! -e "$T/ram/update" ]
	echo "$output"
	return "$status"
}

@test "swupdate: ustate becomes success after accept, and failure after a trial" {
	root_cards ext4 100 150
	fake_env
	run -0 swu report
	refuses_bad_files swu_install
	[ ! -e "$T/env/cowfs_time" ]
	swu_install "$T/delta"
	echo 1 >"$T/env/ustate" # by SWUpdate
	run timeout 3 "$FLEET/swupdate" report
	[ "$status" = 124 ] # it waits for the reboot
	reboot
	has_new
	run timeout 3 "$FLEET/swupdate" report
	[ "$status" = 124 ]
	[ "$(cat "$T/env/ustate")" = 1 ]
	cow accept root --trial
	run -0 swu report
	[ "$(cat "$T/env/ustate")" = 2 ]
	# and one that fails
	swu_install "$T/foreign"
	echo 1 >"$T/env/ustate"
	reboot
	reboot
	reboot
	has_new
	run -0 swu report
	[ "$(cat "$T/env/ustate")" = 3 ]
	run -0 swu report
	[ "$(cat "$T/env/ustate")" = 3 ]
}

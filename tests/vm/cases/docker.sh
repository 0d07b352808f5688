# shellcheck shell=sh disable=SC1091,SC2016,SC2034,SC2154
# SPDX-License-Identifier: MIT
# The case containers with Docker, whose daemon keeps a database of its own beside the layers.
# guests: debian13-initramfs-docker
# short:
. "$CASES/containers.sh"

# it is started when there is a network to wait for
APPEND="systemd.mask=systemd-networkd-wait-online.service"
ENGINE=docker STORE=/var/lib/docker
IMAGE_FILES="image overlay2"

engine_start() {
	mkdir -p /etc/docker
	echo '{ "bridge": "none", "iptables": false, "ip6tables": false }' >/etc/docker/daemon.json
	systemctl reset-failed docker
	must systemctl restart docker
}

engine_waited() { wait_for 180 docker info || fail "no Docker: $(journalctl -b -o cat -u docker | tail -n 8)"; }

engine_checks() {
	is "the storage driver" "$(docker info --format '{{.Driver}} {{index .DriverStatus 0 1}}')" "overlay2 extfs"
}

# Its daemon would not have started with a store that is not whole, and knows all layers.
store_checked() {
	docker images -q | while read -r id; do docker image inspect "$id" >/dev/null || echo "$id"; done >/run/cowfs-test/broken
	is "images without layers" "$(cat /run/cowfs-test/broken)" ""
}

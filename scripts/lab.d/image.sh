# shellcheck shell=bash disable=SC2154,SC2016,SC2034
# Makes and caches the guest's image; part of scripts/lab.
# An image is a folder with root.ext4 (read-only root file system), vmlinux and initrd, named after its recipe.

image_suite=trixie

# image_ensure sets image to the folder of the recipe's image and builds it if it isn't there.
image_ensure() {
	local recipe=$here/lab.d/recipe key
	key=$(cd "$here/lab.d" && sha256sum image.sh recipe/* | sha256sum | cut -c1-16)
	image=$cache/$key
	if [ -e "$image/root.ext4" ]; then
		touch -c "$image" 2>/dev/null || true # last use
		return 0
	fi
	[ "$(uname -m)" = x86_64 ] || die 125 "the lab's guest needs an x86_64 machine, this is $(uname -m)"
	local tool
	for tool in mmdebstrap mke2fs flock; do
		PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || die 125 "no $tool here: run scripts/deps lab"
	done
	mkdir -p "$cache" || die 125 "cannot make $cache"
	(
		flock 9
		[ -e "$image/root.ext4" ] && exit 0 # another run has just built it
		echo "lab: building the guest's image (Debian $image_suite; some minutes, once) ..." >&2
		image_build "$recipe" || exit 1
		# Others' images that nobody used for a month.
		find "$cache" -mindepth 1 -maxdepth 1 -type d ! -path "$image" -mtime +30 -exec rm -rf --one-file-system {} +
	) 9>"$cache/lock" || die 125 "the guest's image could not be built"
}

# image_build RECIPE builds into a folder of its own and moves it into place when it is whole.
image_build() {
	local recipe=$1 packages mirror started=$SECONDS own # dir is global: traps use it
	find "$cache" -mindepth 1 -maxdepth 1 -name 'new.*' -exec rm -rf --one-file-system {} + # interrupted ones: we hold the lock
	dir=$(mktemp -d "$cache/new.XXXXXX")
	trap 'rm -rf --one-file-system "$dir"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	chmod 755 "$dir"
	packages=$(sed 's/#.*//' "$recipe/packages" | xargs | tr ' ' ,)
	image_apt_options >"$dir/apt.conf"
	mapfile -t mirror < <(image_mirror) # none where apt uses none: mmdebstrap then has its own

	local exclude fd options=()
	for exclude in /usr/share/man /usr/share/doc /usr/share/locale /usr/share/info /usr/lib/udev/hwdb.d; do
		options+=("--dpkgopt=path-exclude=$exclude/*")
	done
	(
		# mmdebstrap names descriptors of its own to a shell that knows only those up to 9: give it no others.
		for fd in /proc/self/fd/*; do
			fd=${fd##*/}
			[ "$fd" -le 2 ] || eval "exec $fd>&-"
		done
		# As root it mounts proc, sys and dev in the new root: in a mount namespace they go with it, even if it is killed,
		# and so do its files with ours. Without being root it has its own namespace, and needs a folder open to all.
		own=()
		if [ "$(id -u)" = 0 ]; then
			mkdir "$dir/tmp"
			export TMPDIR=$dir/tmp
			! unshare --mount --propagation private true 2>/dev/null || own=(unshare --mount --propagation private)
		fi
		exec "${own[@]}" mmdebstrap --variant=apt --include="$packages" --aptopt="$dir/apt.conf" "${options[@]}" \
			--customize-hook="copy-in '$recipe/setup' '$recipe/init' /tmp" \
			--customize-hook='mv "$1/tmp/init" "$1/tmp/lab-init"' \
			--customize-hook='chroot "$1" /tmp/setup && rm "$1/tmp/setup"' \
			"$image_suite" "$dir/root.tar" "${mirror[@]}" </dev/null 2>&1
	) | tee "$dir/log" | { grep --line-buffered -E '^[IWE]: ' >&2 || true; } || {
		tail -n 40 "$dir/log" >&2
		return 1
	}
	echo "lab: packages are there after $((SECONDS - started)) s, writing the file system ..." >&2

	local as_root=(env) # who is not root writes root's files by fakeroot
	[ "$(id -u)" = 0 ] || as_root=(fakeroot)
	PATH=$PATH:/usr/sbin:/sbin "${as_root[@]}" sh -euc '
		cd "$1"
		mkdir root
		tar -x -f root.tar -C root --exclude="./dev/*"
		rm root.tar
		mv root/boot/vmlinux vmlinux
		mv root/boot/lab-initrd initrd
		rm -f root/boot/vmlinuz-*
		mkdir -p root/lab
		size=$(du -sm --apparent-size root | cut -f1)
		truncate -s "$((size + size / 4 + 64))M" root.ext4
		mke2fs -q -t ext4 -O ^has_journal,^metadata_csum,^resize_inode -m 0 -d root root.ext4
	' sh "$dir" >&2 || return 1
	rm -rf --one-file-system "$dir/root" "$dir/tmp" "$dir/apt.conf" "$dir/log"
	chmod 644 "$dir"/*
	sync -f "$dir"
	rm -rf "$image"
	mv -T "$dir" "$image" || return 1
	trap - EXIT INT TERM HUP
	echo "lab: the image is there after $((SECONDS - started)) s" >&2
}

# image_mirror prints the Debian mirror that this machine's apt uses; nothing where it uses none.
image_mirror() {
	if [ -n "${LAB_MIRROR:-}" ]; then
		echo "$LAB_MIRROR"
		return
	fi
	apt-get indextargets --format '$(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		awk '$1 == "Debian" && $2 == "main" { print $3; exit }'
}

# image_apt_options prints how this machine's apt reaches its mirror: proxies, retries, checks of dates.
image_apt_options() {
	apt-config dump 2>/dev/null | grep -E '^Acquire::(https?::|Check-|Retries|ForceIPv|Queue-Mode)' || true
}

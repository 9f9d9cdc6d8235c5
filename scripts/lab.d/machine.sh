# shellcheck shell=bash disable=SC2154,SC2034
# Runs the guest; part of scripts/lab. Uses its options, and image.

# Global, since traps use them: the run's folder, QEMU's command line and process, the process that prints the output,
# what accelerates the machine, and why it was ended before its time.
dir='' qemu=() pid='' cat_pid='' accel='' verdict=''

# machine_qemu ARG... sets qemu to the command line for the image's kernel, with ARG appended to the kernel's own.
machine_qemu() {
	local append="console=ttyS0 panic=-1 quiet loglevel=4 tsc=reliable mitigations=off cryptomgr.notests"
	append+=" random.trust_cpu=on audit=0 apparmor=0 intel_iommu=on iommu=pt $*"
	qemu=(qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot
		-machine "q35,kernel-irqchip=split" -cpu max
		-kernel "$image/vmlinux" -initrd "$image/initrd" -append "$append"
		-device "isa-debug-exit,iobase=0xf4,iosize=4")
	case $accel in
	kvm) qemu+=(-accel kvm) ;;
	*) qemu+=(-accel "tcg,thread=multi") ;;
	esac
}

# machine_accel sets accel: kvm only where this kernel really boots under it, which is tried once per boot of the
# machine (a /dev/kvm may exist and be good for special kernels only).
machine_accel() {
	accel=${LAB_ACCEL:-}
	case $accel in
	kvm | tcg) return ;;
	'') ;;
	*) die 2 "LAB_ACCEL is kvm or tcg, not '$accel'" ;;
	esac
	accel=tcg
	[ -r /dev/kvm ] && [ -w /dev/kvm ] || return 0
	local known qemu status=0
	known=$cache/kvm-$(</proc/sys/kernel/random/boot_id)
	if [ ! -e "$known" ]; then
		accel=kvm
		machine_qemu lab=probe
		{
			(ulimit -c 0 && exec timeout -k 2 20 "${qemu[@]}" -smp 1 -m 1024 -serial null </dev/null) || status=$?
		} >/dev/null 2>&1
		accel=tcg
		# 43 is what the initramfs answers with.
		if [ "$status" = 43 ]; then accel=kvm; fi
		rm -f "$cache"/kvm-* 2>/dev/null || true
		{ echo "$accel" >"$known.$$" && mv "$known.$$" "$known"; } 2>/dev/null || true
		return 0
	fi
	accel=$(<"$known")
}

# machine_job MODE writes the job disk: a tar of the guest's scripts, the command and the checkout.
machine_job() {
	local job=$dir/job
	mkdir -p "$job/bin"
	cp "$here/lab.d/guest/start" "$job/start"
	cp "$here/lab.d/guest/qmon" "$job/bin/qmon"
	[ ${#command[@]} -eq 0 ] || printf '%q ' "${command[@]}" >"$job/command"
	{
		printf 'mode=%q timeout=%q terminal=%q\n' "$1" "$timeout" "${TERM:-dumb}"
		printf 'rows=%q columns=%q\n' "${rows:-24}" "${columns:-80}"
		echo "shares=($([ ${#mounts[@]} -eq 0 ] || printf '%q ' "${mounts[@]}"))"
	} >"$job/conf"

	# The checkout's own files and what was built; nothing that is ignored besides. A file that vanishes or changes
	# meanwhile is no failure: others may be at work in the checkout.
	local list=$dir/files
	(
		cd "$checkout" || exit 1
		if ! git -c safe.directory="$checkout" ls-files -z -co --exclude-standard 2>/dev/null; then
			find . \( -path ./.git -o -path ./.cache -o -path ./bin \) -prune -o ! -type d -print0
		fi
		[ ! -d bin ] || find bin ! -type d -print0
	) | sort -zu >"$list"
	local status=0
	(
		cd "$checkout"
		tar -c -f "$dir/job.tar" --owner=0 --group=0 --warning=no-file-changed --ignore-failed-read --warning=no-failed-read \
			--no-recursion --transform='flags=r;s,^\(\./\)\?,src/,' --null -T "$list" 2>"$dir/tar.log"
	) || status=$?
	[ "$status" -le 1 ] || { cat "$dir/tar.log" >&2; die 125 "cannot pack the checkout"; }
	mkdir -p "$dir/src"
	tar -r -f "$dir/job.tar" -C "$dir" --owner=0 --group=0 job src || die 125 "cannot pack the job"
	truncate -s '%1M' "$dir/job.tar"
}

# machine_prepare MODE sets dir and qemu for a run. QEMU is to run inside dir, so that names in it may be short (a
# socket's is limited) and hold any character.
machine_prepare() {
	command -v qemu-system-x86_64 >/dev/null || die 125 "no qemu-system-x86_64 here: run scripts/deps lab"
	machine_accel
	local stale
	for stale in "${TMPDIR:-/tmp}"/rocet-lab.*.*; do # of runs that were killed
		[[ $stale =~ \.([0-9]+)\.[^.]*$ ]] && [ -O "$stale" ] && [ ! -d "/proc/${BASH_REMATCH[1]}" ] && rm -rf "$stale"
	done
	dir=$(mktemp -d "${TMPDIR:-/tmp}/rocet-lab.$$.XXXXXX")
	trap 'rm -rf "$dir"' EXIT
	machine_job "$1"
	machine_qemu "hugepages=$hugepages"
	qemu+=(-smp "$smp" -m "$mem" -serial file:console
		-device "intel-iommu,intremap=on,caching-mode=on"
		-blockdev "driver=file,filename=${image//,/,,}/root.ext4,node-name=root,read-only=on,auto-read-only=off"
		-device "virtio-blk-pci,drive=root,serial=root"
		-blockdev "driver=file,filename=job.tar,node-name=job,read-only=on,auto-read-only=off"
		-device "virtio-blk-pci,drive=job,serial=job")

	# The drives stand behind ports of their own, so that they can be unplugged, and behind throttles, so that they
	# can be slowed down or stopped; the nodes outlive the devices, so that they can be plugged in again.
	local drive
	for drive in 0 1; do
		truncate -s 8G "$dir/nvme$drive"
		qemu+=(-object "throttle-group,id=throttle$drive"
			-blockdev "driver=file,filename=nvme$drive,node-name=file$drive,discard=unmap,cache.direct=off,cache.no-flush=on"
			-blockdev "driver=raw,file=file$drive,node-name=raw$drive,discard=unmap"
			-blockdev "driver=throttle,throttle-group=throttle$drive,file=raw$drive,node-name=drive$drive,discard=unmap"
			-device "pcie-root-port,id=port$drive,chassis=$((drive + 1)),slot=$((drive + 1))"
			-device "nvme,id=lab$drive,bus=port$drive,drive=drive$drive,serial=lab$drive,max_ioqpairs=8")
	done

	local share number=0
	for share in "${shares[@]}"; do
		qemu+=(-virtfs "local,path=${share//,/,,},mount_tag=share$number,security_model=none,multidevs=remap")
		number=$((number + 1))
	done

	# The guest's status, and the monitor, both reached from inside through ports.
	qemu+=(-device virtio-serial-pci
		-chardev "file,id=status,path=status" -device "virtserialport,chardev=status,name=lab.status"
		-chardev "socket,id=monitor,path=qmp,server=on,wait=off" -mon "chardev=monitor,mode=control"
		-chardev "socket,id=qmp,path=qmp" -device "virtserialport,chardev=qmp,name=lab.qmp")
	: >"$dir/status"
	: >"$dir/console"
}

# machine_watch waits for the machine and ends it when it takes too long; sets verdict to a reason if it did so.
machine_watch() {
	local limit=$((SECONDS + boot_timeout)) up=
	while kill -0 "$pid" 2>/dev/null; do
		if [ -z "$up" ] && [ -s "$dir/status" ]; then
			up=1
			limit=$((SECONDS + timeout))
			rm -f "$dir/job.tar" "$dir"/nvme? # QEMU has them open: gone with it, whatever happens to us
		fi
		if [ "$SECONDS" -ge "$limit" ]; then
			if [ -n "$up" ]; then verdict=timeout; else verdict=boot; fi
			machine_kill
			break
		fi
		machine_ended && break
		# Nobody reads the output any more, and not because QEMU has ended: what SIGPIPE is to a command.
		if ! kill -0 "$cat_pid" 2>/dev/null; then
			machine_ended && break
			machine_kill
			exit 141
		fi
	done
	wait "$pid" 2>/dev/null || true
}

# machine_finish ends with the command's status or tells why there is none.
machine_finish() {
	local status
	status=$(sed -n 's/^exit \([0-9]*\)$/\1/p' "$dir/status" | head -1)
	if [ -z "$verdict" ] && [ -n "$status" ]; then
		[ "$status" != 125 ] || machine_console "the guest could not be set up, or the command ended with 125"
		exit "$status"
	fi
	case $verdict in
	timeout) machine_console "the command took longer than $timeout s" && exit 124 ;;
	boot) machine_console "the guest did not start within $boot_timeout s" && exit 125 ;;
	esac
	[ -s "$dir/status" ] || { machine_console "the guest did not start" && exit 125; }
	machine_console "the guest died before the command ended"
	exit 126
}

machine_console() { # MESSAGE
	{
		echo "lab: $1 ($accel). The end of its console:"
		tail -n 150 "$dir/console" | tr -d '\r' | sed 's/^/  | /'
		[ ! -s "$dir/qemu.log" ] || sed 's/^/  qemu: /' "$dir/qemu.log"
	} >&2
}

# machine_ended sleeps a quarter of a second, or until QEMU ends: then its end of the fifo closes.
machine_ended() {
	local status=0
	read -r -t 0.25 _ <&"$alive" || status=$?
	[ $status -le 128 ]
}

machine_kill() {
	[ -n "$pid" ] || return 0
	kill -KILL "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
}

machine_run() {
	local alive
	machine_prepare run
	# QEMU writes the command's output to a descriptor of ours: as a path it would be truncated.
	local output
	exec {output}> >(exec cat)
	cat_pid=$!
	qemu+=(-add-fd "fd=$output,set=1" -chardev "file,id=out,path=/dev/fdset/1,append=on"
		-device "virtserialport,chardev=out,name=lab.out")
	mkfifo "$dir/alive"
	trap 'machine_kill; exit 130' INT
	trap 'machine_kill; exit 143' TERM HUP
	# Killed with us, even if we are killed. The fifo's other end closes when it ends.
	(cd "$dir" && exec setpriv --pdeathsig KILL "${qemu[@]}" </dev/null >qemu.log 2>&1 7>alive) &
	pid=$!
	exec {alive}<"$dir/alive" {output}>&-
	machine_watch
	wait "$cat_pid" || true
	machine_finish
}

machine_shell() {
	local rows columns saved
	saved=$(stty -g)
	read -r rows columns < <(stty size)
	[ "$rows" != 0 ] || rows=24 columns=80 # a terminal of unknown size
	machine_prepare shell
	qemu+=(-chardev "stdio,id=shell,signal=off" -device "virtconsole,chardev=shell")
	trap 'stty "$saved"; rm -rf "$dir"' EXIT
	echo "lab: starting the guest ($accel); exit or ^D ends it" >&2
	(cd "$dir" && exec "${qemu[@]}" 2>qemu.log) || true
	stty "$saved"
	machine_finish
}

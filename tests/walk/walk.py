#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random walks over all commands that change the state of a volume, against a model with one rule: what a command that ended
with 0 called committed is there after every later attach, unless a later command said that it will be lost. Live files never
change by themselves. The seed chooses ext4, xfs or btrfs, the size of the log, and a volume or a root that boots, for trials. As root, in a
mount namespace of its own:

    walk.py [--steps 80] [--seconds 60] [--seed N]     programs: COWFS_BUILD (default: build)

A walk that fails prints its seed and its steps. The same seed makes the same walk, but for what the pressure of RAM commits.
First each step is made on the root of an ext4, where nothing is in its way, until it has its effect. What it is refused, and how often each step
had its effect, is told at the end.
"""
import argparse, collections, json, os, random, re, shutil, signal, subprocess, sys, tempfile, time

BUILD = os.environ.get("COWFS_BUILD") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
PENDING = "UNDO PENDING"
TOO_LARGE, UNSYNCED = "the log is too small for this commit", "could not be synced"


# of all walks: how often a step was made, and had its effect; what was refused otherwise than its step expects
MADE, HAD, REFUSED = collections.Counter(), collections.Counter(), collections.Counter()


class Wrong(Exception):
    pass


class Walk:
    def __init__(self, seed, plain=False):
        self.step = ""
        self.r = random.Random(seed)
        self.dir = tempfile.mkdtemp(prefix="cowfs-walk.")
        self.env = dict(os.environ, COWFS_RUNDIR=self.dir + "/run", COWFS_ON_CRASH="stop", COWFS_INVARIANT="abort",
                        COWFS_CONF=self.dir + "/conf", COWFS_DEVDIR=self.dir + "/dev")
        self.mnt, self.view = self.dir + "/mnt", self.dir + "/view"
        self.log, self.card = [], None
        # of the files in mnt: now, in the newest generation, in the held one; each content that a file ever had
        self.live, self.newest, self.held, self.ever = {}, {}, None, {}
        self.pending = self.armed = self.inhibited = self.undone = False
        self.vague = False  # pressure of the RAM, or of the log, may have committed something in between
        self.pressed = 0  # how often it has
        self.delta = None  # what an export wrote: the files, and for which kind of file system it can be imported
        self.replaced = False  # an import waits for the next attach, and nothing is committed until then
        self.kind = "ext4" if plain else self.r.choice(list(self.KINDS))
        self.small = not plain and self.r.random() < 0.5
        self.root = plain or self.r.random() < 0.4  # the root, which boots
        self.volume = "root" if self.root else "vol"
        self.boots = None  # how often it still boots on trial
        self.pids = set()  # of its daemons

    # ---- programs ----

    def sh(self, *argv, ok=True):
        p = subprocess.run(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
        if ok is not None:
            self.log.append(f"{' '.join(os.path.basename(a) for a in argv[:6])} -> {p.returncode} {p.stdout.strip()[-300:]}")
        if ok and p.returncode:
            raise Wrong(f"{argv} ended with {p.returncode}")
        return p.returncode, p.stdout

    def cow(self, *argv, ok=True):
        return self.sh(BUILD + "/cowctl", *argv, ok=ok)

    def had(self, rc=0, text="", *known):
        """The step had its effect, or was refused, for a reason that is known."""
        if rc == 0:
            HAD[self.step] += 1
        elif not any(k in text for k in known):
            line = re.sub(r"\S*/\S+|[0-9]+([.][0-9]+)?", "N", text.strip().split("\n")[-1])
            REFUSED[f"{self.step}: {rc}: {line[:150]}"] += 1
        return rc == 0

    def says(self, text, what):
        if what not in text:
            raise Wrong(f"'{what}' was not said")

    # size of the card in MiB; how its file system is made and checked
    KINDS = {"ext4": (150, "mke2fs -q -F -t ext4 -E nodiscard IMG 100M", "e2fsck -fn"),
             "xfs": (420, "mkfs.xfs -q -f -K -d size=320m IMG", "xfs_repair -n"),
             "btrfs": (250, "mkfs.btrfs -q -f -K -b 150M IMG", "btrfs check --readonly")}

    def start(self):
        for d in (self.mnt, self.view, self.dir + "/sbin", self.dir + "/dev"):
            os.mkdir(d)
        shutil.copy(BUILD + "/cowfs-boot", self.dir + "/sbin/cowfs")
        os.symlink("cowfs", self.dir + "/sbin/cowctl")
        with open(self.env["COWFS_CONF"], "w") as f:
            f.write("[root]\nram = 64M\n" if self.root else "")
        img = self.dir + "/card.img"
        card_mib, mkfs, _ = self.KINDS[self.kind]
        self.sh("truncate", "-s", f"{card_mib}M", img)
        self.sh(*(word.replace("IMG", img) for word in mkfs.split()))
        self.card = self.sh("losetup", "-f", "--show", img)[1].strip()
        self.cow("prepare", self.card, *(("--log-size", "8M", "--erase-block", "1M") if self.small else ()))
        self.attach()
        self.cow("commit")

    def attach(self):
        if self.root:
            for left in "counts", "trial":  # of the boot before
                if os.path.exists(f"{self.dir}/run/root.{left}"):
                    os.unlink(f"{self.dir}/run/root.{left}")
            text = self.sh(self.dir + "/sbin/cowctl", "boot", "--device", self.card, "--conf", self.env["COWFS_CONF"],
                           "--cmdline", "ro quiet")[1]
            self.loop = [line for line in text.split("\n") if line.startswith("/dev/loop")][-1]
            if self.boots is not None:
                self.boots -= 1
                if self.boots < 0 and not self.pending:
                    self.says(text, "THE TRIAL HAS FAILED")
        else:
            self.loop = self.cow("attach", self.card, "--name", self.volume, "--ram", "64M")[1].split()[-1]
        self.sh("mount", self.loop, self.mnt)
        self.armed = self.inhibited = self.replaced = False
        self.pressed = 0

    def umount(self):
        for _ in range(3000):  # a commit by pressure holds it for a moment
            if self.sh("umount", self.mnt, ok=False)[0] == 0:
                return
            time.sleep(0.1)
        raise Wrong("umount fails")

    def end(self):
        for d in (self.view, self.mnt):
            subprocess.run(["umount", "-lq", d], stderr=subprocess.DEVNULL)
        quiet = dict(env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        any(subprocess.run([BUILD + "/cowctl", "detach", "--discard", self.volume], **quiet).returncode == 0 or not self.processes()
            or time.sleep(0.1) for _ in range(300))  # it may only begin
        subprocess.run([BUILD + "/cowctl", "status"], **quiet)  # of a daemon that died
        if self.card:
            subprocess.run(["blockdev", "--setrw", self.card], stderr=subprocess.DEVNULL)
            subprocess.run(["losetup", "-d", self.card], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.dir, ignore_errors=True)

    # ---- files ----

    @staticmethod
    def read(path):
        return {n: open(os.path.join(path, n), "rb").read() for n in os.listdir(path) if n != "lost+found"}

    def expect(self, found, model, what):
        bad = sorted(n for n in found.keys() | model.keys() if found.get(n) != model.get(n))
        if bad:
            raise Wrong(f"{what}: " + ", ".join(f"{n} has {self.describe(n, found)} instead of {self.describe(n, model)}"
                                                for n in bad))

    def describe(self, name, files):
        data = files.get(name)
        if data is None:
            return "nothing"
        known = [str(i) for i, d in enumerate(self.ever.get(name, {})) if d == data]
        return f"{len(data)} bytes (content {known[0] if known else 'never seen'})"

    def put(self, name, data):
        with open(os.path.join(self.mnt, name), "wb") as f:
            f.write(data)
        self.live[name] = data
        self.ever.setdefault(name, {})[data] = True

    def data(self, most=40000):
        return self.r.randbytes(self.r.randrange(1, most))

    def name(self):
        return "f%d" % self.r.randrange(8)

    # ---- steps ----

    def write(self):
        for _ in range(self.r.randrange(1, 4)):
            self.put(self.name(), self.data())
        self.had()

    def delete(self):
        if self.live:
            name = self.r.choice(sorted(self.live))
            os.unlink(os.path.join(self.mnt, name))
            del self.live[name]
            self.had()

    def committed(self, text):
        self.newest, self.vague, self.undone = dict(self.live), UNSYNCED in text, False
        if self.pending:
            self.says(text, PENDING)

    def commit(self, *argv):
        rc, text = self.cow("commit", self.volume, *argv, ok=False)
        if rc == 0 and self.replaced:
            raise Wrong("a commit over what was imported")
        if self.replaced:
            return
        self.had(rc, text, "held", TOO_LARGE)
        if rc == 0:
            self.committed(text)
        elif not (self.held is not None and ("held" in text or TOO_LARGE in text)):
            raise Wrong("a commit failed")

    def checkpoint(self):
        self.commit("--checkpoint")

    def timer(self):
        rc, text = self.cow("commit", "--timer", self.volume, ok=False)
        if rc == 0 and not self.armed and not self.inhibited and not self.replaced:
            self.committed(text if "nothing to commit" not in text else PENDING)
            self.had("nothing to commit" in text, text, "nothing to commit")
        elif rc:
            self.had(rc, text, "held", TOO_LARGE, "inhibited", "imported")

    def hold(self):
        rc, text = self.cow("commit", "--hold", self.volume, ok=False)
        if rc == 0 and self.held is not None:
            raise Wrong("two generations are held")
        self.vague |= UNSYNCED in text
        self.had(rc, text, "is held already", TOO_LARGE)
        if rc == 0:
            self.committed(text)
            self.held = dict(self.live)
        elif self.held is None and UNSYNCED not in text:
            raise Wrong("nothing could be held")

    def undo(self):
        rc, text = self.cow("undo", self.volume, ok=False)
        if (rc == 0) != (self.held is not None):
            raise Wrong("undo")
        self.had(rc, text, "held")
        if rc == 0:
            self.says(text, "lost")
            self.pending = True

    def cancel(self):
        rc, text = self.cow("undo", "--cancel", self.volume, ok=False)
        if rc == 0 and not self.pending:
            raise Wrong("there was no undo to take back")
        self.had(rc, text, "no undo")
        if rc == 0:
            self.says(text, "still held")
            self.pending = False

    def accept(self):
        rc, text = self.cow("accept", self.volume, ok=False)
        self.had(rc, text, "held")
        if rc == 0:
            self.held, self.pending, self.boots = None, False, None
        elif self.held is not None:
            raise Wrong("accept failed")

    def run(self, code, *trial):
        name, data = self.name(), self.data()
        with open(self.dir + "/data", "wb") as f:
            f.write(data)
        before = dict(self.live)
        rc, text = self.cow("run", "--volume", self.volume, *trial, "--", "sh", "-c", f"cp {self.dir}/data {self.mnt}/{name}; exit {code}", ok=False)
        if trial and not self.root:
            if "for the root alone" not in text and "does not count boots" not in text:
                raise Wrong("a trial of a volume that does not boot")
            return
        if self.held is not None:
            if rc != 1 or "is held" not in text:
                raise Wrong("run beside a held generation")
            return
        self.live[name] = data
        self.ever.setdefault(name, {})[data] = True
        if rc != code:
            raise Wrong("run")
        self.had()
        if code == 0:
            self.newest, self.vague, self.undone = dict(self.live), False, False
            if trial:
                self.held, self.boots = before, int(trial[1])
        else:
            self.says(text, "comes back at the next")
            self.newest, self.held, self.pending, self.undone, self.vague = before, dict(before), True, False, False

    def run_well(self):
        self.run(0)

    def run_badly(self):
        self.run(3)

    def run_trial(self):
        self.run(self.r.choice((0, 0, 3)), "--trial", str(self.r.randrange(1, 3)))

    def run_nothing(self):
        rc, text = self.cow("run", "--volume", self.volume, "--", "no-such-program", "-y", ok=False)
        if rc != 127:
            raise Wrong("run of no program")
        self.had()

    def discard(self):
        self.cow("discard", self.volume)
        self.armed = True
        self.had()

    def discard_cancel(self):
        self.cow("discard", "--cancel", self.volume)
        self.armed = False
        self.had()

    def look(self, model, what, *argv):
        rc, text = self.cow("view", *argv, self.volume, self.view, ok=False)
        if not self.had(rc, text, "RAM"):
            return
        try:
            found = self.read(self.view)
        finally:
            self.sh("umount", self.view)
        self.look_at_pressure()
        if not (self.vague and what == "view") and UNSYNCED not in text:
            self.expect(found, model, what)

    def view_newest(self):
        self.look(self.newest, "view")

    def view_now(self):
        self.look(self.live, "view --now", "--now")

    def view_mounted(self):
        if self.cow("view", self.volume, self.mnt, ok=False)[0] == 0:
            raise Wrong("a view hides the volume")
        self.had()

    def revert(self):
        name = self.name()
        if self.vague or (name not in self.live and name not in self.newest):
            return
        if self.had(*self.cow("revert", "--yes", os.path.join(self.mnt, name), ok=False), *self.NO_PATHS):
            self.look_at_pressure()
            model = self.read(self.mnt) if self.vague else self.newest
            self.live.pop(name, None)
            self.live.update({name: model[name]} if name in model else {})

    def commit_path(self):
        name = self.name()
        if self.vague or name not in self.live:
            return
        rc, text = self.cow("commit", os.path.join(self.mnt, name), ok=False)
        if self.had(rc, text, *self.NO_PATHS):
            if self.pending and "nothing to commit" not in text:
                self.says(text, PENDING)
            if self.newest.get(name) != self.live[name]:
                self.undone = False
            self.newest[name] = self.live[name]

    def trim(self):
        self.had(*self.cow("trim", self.volume, ok=False), "has only some files of now")

    def export(self):
        if self.vague:
            return
        whole = self.held is None or self.r.random() < 0.5
        if os.path.exists(self.dir + "/delta"):
            os.unlink(self.dir + "/delta")
        rc, text = self.cow("export", *(("--all",) if whole else ()), self.volume, self.dir + "/delta", ok=False)
        self.had(rc, text)
        self.look_at_pressure()
        self.delta = dict(self.newest) if rc == 0 and not self.vague else None

    def import_(self):
        if self.delta is None or self.armed:
            return
        rc, text = self.cow("import", "--older", self.volume, self.dir + "/delta", ok=False)
        if rc:
            self.had(rc, text, "xfs", "RAM")
            return
        if "has this already" in text:
            return
        if self.pending:
            self.says(text, PENDING)
        self.newest, self.vague, self.undone = dict(self.delta), False, False
        self.replaced = True
        self.had()

    def inhibit(self):
        self.cow("inhibit", self.volume)
        self.inhibited = True
        self.had()

    def uninhibit(self):
        self.cow("uninhibit", self.volume)
        self.inhibited = False
        self.had()

    def look_at_pressure(self):
        pressure = json.loads(self.cow("status", "--json", self.volume, ok=None)[1])["pressure"]
        self.vague |= pressure["commits"] != self.pressed
        self.pressed = pressure["commits"]
        return pressure

    def remount(self):
        self.umount()
        self.sh("mount", self.loop, self.mnt)
        self.had()

    def pressure(self):
        if self.armed or self.look_at_pressure()["gave_up"]:
            return  # writes fail then; the second is said when no commit fits beside a held generation
        try:
            for i in range(3):
                self.put("big%d" % i, self.r.randbytes(12 << 20))
            self.sh("sync", "-f", self.mnt)
        except OSError as e:
            raise Wrong(f"a write failed: {e}")
        pressed = self.pressed
        self.look_at_pressure()
        self.had(self.pressed == pressed)
        self.vague = True
        for i in range(3):
            os.unlink(self.mnt + "/big%d" % i)
            del self.live["big%d" % i]
            del self.ever["big%d" % i]

    def again(self, model, vague):
        """After an attach: is it that, or for what RAM pressure has committed, some state of each file?"""
        self.attach()
        if self.goes_back():
            model, vague = self.held, False
        found = self.read(self.mnt)
        if vague:
            for name, data in found.items():
                if not name.startswith("big") and data not in self.ever.get(name, ()) and data:
                    raise Wrong(f"{name} has a content that it never had")
        else:
            self.expect(found, model, "after the attach")
        self.live, self.newest = dict(found), dict(found)
        for name, data in found.items():
            self.ever.setdefault(name, {})[data] = True
        self.undone = self.pending
        if self.pending or self.goes_back():
            self.held, self.pending, self.boots = None, False, None
        self.vague = False

    def goes_back(self):
        """Has the trial failed, or will it with the next boot?"""
        return self.boots is not None and self.boots < 0

    def detach(self):
        helper = self.r.random() < 0.5
        text = ""
        if helper:
            rc, text = self.sh(BUILD + "/umount.cowfs", self.mnt, ok=False)
        else:
            self.umount()
            rc, text = self.cow("detach", self.volume, ok=False)
        if rc and self.held is not None and ("no room for this commit while generation" in text or TOO_LARGE in text):
            self.sh("mount", self.loop, self.mnt)  # everything stays in RAM
            return False
        if rc:
            raise Wrong("the volume cannot be detached")
        if self.pending:
            self.says(text, PENDING)
        elif self.held is not None and not self.replaced:
            self.says(text, "is held")
        if self.armed:
            self.says(text, "DISCARDED")
        self.wait_gone()
        self.had()
        if self.pending:
            self.again(self.held, False)
        elif self.armed or self.replaced:
            self.again(self.newest, self.vague)
        else:
            self.again(self.live, False)
        return True

    @staticmethod
    def runs(pid):
        """Whatever it has given back already: until its last thread has ended it has files, and its socket answers."""
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/stat") as f:
                    name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
                    if name.startswith("cowfs") and rest.split()[0] not in "ZX":
                        return True
        except OSError:
            pass
        return False

    def processes(self):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    mine = f"COWFS_RUNDIR={self.dir}/run".encode() in f.read().split(b"\0")
                with open(f"/proc/{pid}/comm") as f:
                    if mine and f.read().startswith("cowfs") and os.path.exists(f"/proc/{pid}/exe"):
                        found.append(int(pid))
            except OSError:
                pass
        found += [pid for pid in sorted(self.pids - set(found)) if self.runs(pid)]
        self.pids = set(found)
        return found

    def wait_gone(self):
        for _ in range(2000):
            if not self.processes():
                return
            time.sleep(0.05)
        raise Wrong("the daemon does not end")

    def kill(self):
        self.look_at_pressure()
        self.vague |= self.small and self.kind != "ext4"  # all changes go through the log, which may commit at any time
        victims = self.processes()
        if self.r.random() < 0.5:
            victims = victims[-1:] if self.r.random() < 0.5 else victims[:1]
        for pid in victims:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self.log.append(f"kill {len(victims)}")
        self.had(not victims)
        for _ in range(100):  # one of several may be started again
            time.sleep(0.05)
            if not self.processes():
                break
        for pid in self.processes():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self.wait_gone()
        if self.root:  # a boot does not find what one before it has left: the machine loses it with its last mount
            self.sh("losetup", "-d", self.loop, ok=False)
        self.sh("umount", self.mnt, ok=False)
        if self.pending:
            self.again(self.held, False)
        else:
            self.again(self.newest, self.vague)

    # what a path of an xfs or btrfs, of a held generation or without RAM is refused for
    NO_PATHS = ("held", "RAM", "UNDO PENDING", "pending", "imported")
    STEPS = {write: 14, delete: 3, commit: 8, checkpoint: 2, timer: 2, hold: 3, undo: 3, cancel: 2, accept: 3, run_well: 3,
             run_badly: 2, run_nothing: 3, run_trial: 2, discard: 1, discard_cancel: 2, view_newest: 2, view_now: 2, view_mounted: 1, revert: 2,
             commit_path: 3, trim: 1, export: 3, import_: 4, inhibit: 1, uninhibit: 1, remount: 1, pressure: 1, detach: 4, kill: 3}
    REPLACED = [write, delete, commit, timer, view_now, trim, inhibit, uninhibit, remount, detach, detach, kill]

    # in an order in which nothing is in the way of the next one; what has more than one outcome is made until it has its effect
    EACH = [write, commit, write, checkpoint, write, timer, view_newest, view_now, view_mounted, write, revert, write, commit_path, delete, commit, trim,
            export, hold, undo, cancel, accept, run_well, run_nothing, run_badly, detach, run_trial, undo, detach, inhibit, uninhibit,
            discard, discard_cancel, remount, pressure, checkpoint, kill, write, commit, export, write, commit, import_, detach]

    def make(self, step):
        self.step = step.__name__
        self.log.append(f"-- {self.step}{' pending' if self.pending else ''}{' held' if self.held is not None else ''}"
                        f"{' armed' if self.armed else ''}{' vague' if self.vague else ''}"
                        f"{' replaced' if self.replaced else ''}")
        MADE[self.step] += 1
        step(self)
        self.expect(self.read(self.mnt), self.live, "live")
        self.look_at_pressure()

    def each(self):
        self.start()
        for step in self.EACH:
            had = HAD[step.__name__]
            for n in range(30):
                if n and not self.replaced:  # pressure may have committed what it is for
                    self.make(Walk.write)
                self.make(step)
                if HAD[step.__name__] > had:
                    break
            else:
                raise Wrong(f"{step.__name__} had no effect in 30 times")
        missing = {step.__name__ for step in self.STEPS} - HAD.keys()
        if missing:
            raise Wrong(f"no effect, or not tried: {' '.join(sorted(missing))}")
        self.last()

    def walk(self, steps):
        self.start()
        for _ in range(steps):
            step = self.r.choices(list(self.STEPS), list(self.STEPS.values()))[0]
            if self.replaced:
                step = self.r.choice(self.REPLACED)
            self.make(step)
        self.last()

    def last(self):
        self.step = "end"
        if not self.detach():
            self.accept()
            self.detach()
        self.umount()
        self.cow("detach", "--discard", self.volume)
        self.wait_gone()
        if self.held is None:
            self.cow("release", self.card)
            if self.kind == "xfs":  # its log is replayed by a mount alone
                self.sh("mount", self.card, self.mnt)
                self.umount()
            self.sh(*self.KINDS[self.kind][2].split(), self.card)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--seconds", type=float, default=0)
    p.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    o = p.parse_args()
    signal.signal(signal.SIGTERM, lambda s, _: signal.signal(s, signal.SIG_IGN) and sys.exit(1))  # make sends another one
    begun = time.monotonic()
    until, seed, n = begun + o.seconds, o.seed, 0
    print(f"walk: seed {seed}", flush=True)
    each = True
    while n == 0 or time.monotonic() < until:
        w = Walk(seed, each)
        try:
            if each:
                w.each()
            else:
                w.walk(o.steps)
        except (Wrong, OSError, subprocess.SubprocessError) as e:
            print(*w.log, f"{w.kind}, {'a small' if w.small else 'the usual'} log, {w.volume}", sep="\n")
            print(f"walk: {e}: walk.py --seed {seed} --steps {o.steps}")
            return 1
        finally:
            w.end()
        if not each:
            n, seed = n + 1, seed + 1
        each = False
    for text, times in REFUSED.most_common():
        print(f"walk: refused {times} times: {text}")
    print("walk: had their effect: " + ", ".join(f"{step} {HAD[step]} of {MADE[step]}" for step in sorted(MADE)))
    print(f"walk: {n} walks of {o.steps} steps, {sum(MADE.values())} steps in {time.monotonic() - begun:.0f} s")
    return 0


sys.exit(main())

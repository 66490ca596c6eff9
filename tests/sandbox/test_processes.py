"""Reading /proc, and killing what does not want to die; each family lives below a fresh interpreter, not pytest's."""

import os

import pytest
from fresh import printed

from mlexpert.sandbox import processes

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has other uids")
UID = 54_021

SUPERVISOR = """
import ctypes, os, resource, signal, sys, time
from mlexpert.sandbox import processes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # adopt orphans
uid = int(sys.argv[1]) if sys.argv[1:] else None

def start(body):
    '''A script: in a session of its own, limited to 60 processes, under another uid where there is one.'''
    ready, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        os.read(ready, 1)
        return child
    try:
        os.setsid()
        if uid:
            resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))
            os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
            ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # a change of uid hid its size
        else:
            own = sum(os.stat(f"/proc/{p}").st_uid == os.getuid() for p in os.listdir("/proc") if p.isdigit())
            resource.setrlimit(resource.RLIMIT_NPROC, (own + 100, own + 100))
        body(lambda: os.write(tell, b"x"))
    finally:
        os._exit(0)

def bomb(ready):
    ready()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
    while True:
        try:
            if os.fork() == 0: os.setsid()
        except OSError: pass

def orphan(ready):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: ready(); time.sleep(600)
        os._exit(0)
    os._exit(0)

def sleeper(ready): ready(); time.sleep(600)
"""


def supervised(source):
    return printed(SUPERVISOR + source, *([UID] if os.geteuid() == 0 else []))


# ---------------------------------------------------------------- looking
def test_a_process_is_read_whatever_its_name():
    source = """
child = start(lambda ready: (ctypes.CDLL(None).prctl(15, b") S 1 (x", 0, 0, 0), ready(), time.sleep(600)))
seen = processes.read(child)
print(seen.name, seen.parent == os.getpid(), seen.living, seen.start == processes.start_time(child) > 0)
os.kill(child, 9)
while processes.read(child).living: time.sleep(0.001)
print(processes.read(child).state, processes.processes_below(os.getpid()), len(processes.below(os.getpid())))
os.waitpid(child, 0)
print(processes.read(child), processes.start_time(child))
"""
    assert supervised(source) == ") S 1 (x True True True\nZ [] 1\nNone None\n"


def test_orphans_are_found_by_who_adopts_them():
    source = """
start(orphan)
while len(found := processes.processes_below(os.getpid())) != 1: time.sleep(0.001)
print(processes.read(found[0]).parent == os.getpid(), os.getsid(found[0]) != os.getsid(0))
processes.kill_below()
"""
    assert supervised(source) == "True True\n"


def test_processor_time_counts_the_living_the_ended_and_the_reaped():
    source = """
def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until: pass
def family(ready):
    if os.fork() == 0: burn(0.2); os._exit(0)
    os.wait()
    if os.fork() == 0: burn(0.2); ready(); time.sleep(600)
    if os.fork() == 0: burn(0.2); os._exit(0)
    time.sleep(600)
child = start(family)
until = time.monotonic() + 60
used = lambda: processes.cpu_s_of(child, processes.below(child))
while used() < 0.5 and time.monotonic() < until: time.sleep(0.01)
print(used() >= 0.5)
processes.kill_below()
"""
    assert supervised(source) == "True\n"


def test_memory_is_that_of_the_whole_tree_and_shared_pages_count_once():
    source = """
shared = bytearray(os.urandom(1 << 20) * 60)
def family(ready):
    for _ in range(3):
        if os.fork() == 0: own = bytearray(b"x" * (30 << 20)); os.write(tell, b"x"); time.sleep(600)
    time.sleep(600)
seen, tell = os.pipe()
children = [start(lambda ready: (ready(), family(ready)))]
for _ in range(3): os.read(seen, 1)
pids = processes.processes_below(os.getpid())
if uid: os.setegid(uid); os.seteuid(uid)  # whoever may not look into a process sees its upper bound
print(len(pids), processes.memory_over(pids, 80 << 20), processes.memory_over(pids, 240 << 20))
os.seteuid(os.getuid())
processes.kill_below()
"""
    assert supervised(source) == "4 True False\n"


def test_a_process_that_hides_its_size_counts_in_full():
    source = """
shared = bytearray(os.urandom(1 << 20) * 60)
hider = start(lambda ready: (ctypes.CDLL(None).prctl(4, 0, 0, 0, 0), shared[::4096], ready(), time.sleep(600)))
if uid: os.setegid(uid); os.seteuid(uid)
print(processes.memory_over([hider], 40 << 20), processes.memory_over([hider], 400 << 20))
os.seteuid(os.getuid())
processes.kill_below()
"""
    assert supervised(source) == "True False\n"


def test_uids_in_use_are_those_of_all_processes():
    source = """
child = start(sleeper)
print(processes.uids_in_use() >= {os.getuid(), uid or os.getuid()}, 2**31 in processes.uids_in_use())
processes.kill_below()
"""
    assert supervised(source) == "True False\n"


# ---------------------------------------------------------------- killing all below
@pytest.mark.parametrize("script", ["orphan", "bomb", "awakener"])
def test_nothing_below_survives(script):
    source = """
def awakener(ready):  # wakes what is stopped and forks on
    ready()
    while True:
        try:
            if os.fork() == 0: os.setsid()
            os.kill(-1 if uid else 0, signal.SIGCONT)
        except OSError: pass
start(SCRIPT); time.sleep(0.1)
before = len(processes.below(os.getpid()))
processes.kill_below(60.0)
print(before > 0, processes.below(os.getpid()), processes.reap())
""".replace("SCRIPT", script)
    assert supervised(source) == "True [] False\n"


def test_who_outlives_the_patience_is_named():
    source = """
child = start(sleeper)
processes._signal = lambda process, number: None
try: processes.kill_below(0.05)
except TimeoutError as error: print(str(child) in str(error), "python" in str(error))
os.kill(child, 9)
"""
    assert supervised(source) == "True True\n"


def test_a_number_that_another_process_has_by_now_is_not_shot():
    source = """
from dataclasses import replace
child = start(sleeper)
seen = processes.read(child)
processes._signal(replace(seen, start=seen.start - 1), signal.SIGKILL)
print(os.waitpid(child, os.WNOHANG))
processes._signal(seen, signal.SIGKILL)
print(os.waitpid(child, 0) == (child, 9))
processes._signal(seen, signal.SIGKILL)
"""
    assert supervised(source) == "(0, 0)\nTrue\n"


# ---------------------------------------------------------------- killing a uid
@as_root
@pytest.mark.parametrize("script", ["orphan", "bomb", "sniper"])
def test_nothing_of_a_uid_survives_and_nothing_else_dies(script):
    source = """
def sniper(ready):  # shoots at everything it may, among them whoever becomes its uid to kill it
    ready()
    while True:
        try:
            if os.fork() == 0: os.setsid()
        except OSError: pass
        for pid in range(os.getpid() + 1, os.getpid() + 200):
            try: os.kill(pid, signal.SIGKILL)
            except OSError: pass
target = uid
uid += 1
bystander = start(sleeper)
uid = target
start(SCRIPT); time.sleep(0.1)
processes.kill_uid(target, 60.0)
print(processes._of_uid(target), processes.processes_below(os.getpid()) == [bystander])
processes.kill_below()
""".replace("SCRIPT", script)
    assert supervised(source) == "[] True\n"


@as_root
def test_no_helper_can_be_born_and_still_nothing_survives():
    source = """
start(bomb); time.sleep(0.1)
def refuse(): raise BlockingIOError("no process")
os.fork = refuse
processes.kill_uid(uid, 60.0)
print(processes._of_uid(uid))
processes.kill_below()  # reaps: until somebody does, the dead count against the limit of their user
"""
    assert supervised(source) == "[]\n"


def test_strays_are_killed_and_what_is_kept_lives_on():
    source = """
kept, adopted = start(lambda ready: (os.fork(), ready(), time.sleep(600))), start(orphan)
time.sleep(0.2)
before = {p.pid for p in processes.below(os.getpid()) if p.living}
processes.kill_strays({kept})
left = {p.pid for p in processes.below(os.getpid()) if p.living}
print(kept in left, len(left), len(before))
processes.kill_below()
"""
    assert supervised(source) == "True 2 3\n"


@as_root
def test_survivors_of_a_uid_are_named():
    source = """
child = start(sleeper)
processes._shoot_at_once = lambda uid: None
try: processes.kill_uid(uid, 0.05)
except TimeoutError as error: print(str(child) in str(error))
os.kill(child, 9)
"""
    assert supervised(source) == "True\n"


@pytest.mark.parametrize("uid", [0, os.getuid()])
def test_ones_own_uid_is_not_killed(uid):
    with pytest.raises(ValueError, match="not a script's"):
        processes.kill_uid(uid)

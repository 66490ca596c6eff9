"""Attacks on the network: the owner listens on sockets of every sort, and nobody must arrive there."""

from __future__ import annotations

from mlexpert.sandbox.attacks.attack import ERROR, NETWORK, OK, TOOLS, Attack

_CONNECT = (
    TOOLS
    + """
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "0.0.0.0"),
                        (socket.AF_INET, "169.254.169.254"), (socket.AF_INET, "192.0.2.1"), (socket.AF_INET, "1.1.1.1"),
                        (socket.AF_INET, "172.17.0.1"), (socket.AF_INET6, "2001:db8::1")):
    for port in (@PORT@, 80):
        def tcp():
            with socket.socket(family, socket.SOCK_STREAM) as one:
                one.settimeout(0.3)
                one.connect((address, port))
                return one.getpeername()
        forbidden(f"tcp {address} {port}", tcp)
    def udp():
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            return one.sendto(b"out", (address, @UDP@))
    if not address.startswith(("127", "0.", "::1")):  # into its own loopback it may talk; the owner's door tells if not
        forbidden(f"udp {address}", udp)
    else:
        try: udp()
        except OSError: pass
"""
)
_NAMES = (
    TOOLS
    + """
import urllib.request
forbidden("dns", socket.getaddrinfo, "example.org", 80)
for address in ("http://169.254.169.254/latest/meta-data/", "http://example.org/", "http://metadata.google.internal/"):
    forbidden(address, lambda: urllib.request.urlopen(address, timeout=1).status)
"""
)
_LOCAL = (
    TOOLS
    + """
def connect(address):
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        try:
            with socket.socket(socket.AF_UNIX, kind) as one: one.connect(address)
        except OSError: continue
        return address
    raise OSError("no way in")
forbidden("abstract socket", connect, "\\0@ABSTRACT@")
doors = {"@FOLDER@/socket", "/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket",
         "/run/systemd/private", f"/run/user/{os.getuid()}/bus"}
try: doors |= {line.split()[-1] for line in open("/proc/net/unix").read().splitlines() if "/" in line or " @" in line}
except OSError: pass
for door in doors:
    forbidden(f"socket {door}", connect, "\\0" + door[1:] if door.startswith("@") else door)
for folder in ("/tmp", "/run", "/var/run", "/dev", "/home", "/root", "/sbx"):
    for where, below, names in os.walk(folder):
        below[:] = [name for name in below if name != "lib"]
        for name in names:
            path = f"{where}/{name}"
            try: is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
            except OSError: continue
            if is_socket: forbidden(f"socket {path}", connect, path)
"""
)
_FAMILIES = (
    TOOLS
    + """
# Vsock leads to the host of a virtual machine, whatever the network namespace; the others widen the kernel's surface.
for family in set(range(46)) - {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        forbidden(f"socket family {family} kind {kind}", lambda: socket.socket(family, kind).fileno())
for family in (socket.AF_INET, socket.AF_INET6):
    forbidden("raw socket", lambda: socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMP).fileno())
"""
)
_INSTALL = """
import subprocess, sys
done = subprocess.run([sys.executable, "-m", "pip", "install", "--target", ".", "tinyhtml"], capture_output=True)
print("HOLE installed" if done.returncode == 0 else "not installed")
"""

ATTACKS = (
    Attack("connects", "28", NETWORK, "TCP and UDP to the owner, the machine, cloud metadata, the world", _CONNECT),
    Attack("asks for names", "28", NETWORK, "DNS and HTTP", _NAMES),
    Attack(
        "knocks at local sockets",
        "28",
        NETWORK,
        "abstract and file sockets of other programs",
        _LOCAL,
        unpromised={"plain": "no file is hidden, and sockets are files"},
    ),
    Attack("other families", "28 29", NETWORK, "vsock, packet, netlink-like and raw sockets", _FAMILIES),
    Attack(
        "installs a package",
        "28",
        NETWORK,
        "pip at run time: it must fail soon, not at the wall limit",
        _INSTALL,
        (OK, ERROR),
    ),
)

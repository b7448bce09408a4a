"""Attempts at files, and at what others keep to themselves."""

from tests.escape.attempt import attempt

FILES = [
    attempt("read a file of the host", "attempt(read, SECRET)", "ENOENT", outside=True),
    attempt("read the password hashes", "attempt(read, '/etc/shadow')", "ENOENT"),
    attempt("read the project", "attempt(read, PROJECT + '/pyproject.toml')", "ENOENT", outside=True),
    attempt("write into /usr", "attempt(write, '/usr/escaped')", "EACCES EROFS"),
    attempt("write into the root", "attempt(write, '/escaped')", "EACCES EROFS"),
    attempt("write into /etc", "attempt(write, '/etc/passwd')", "EACCES EROFS"),
    attempt("write into Python", "attempt(write, os.path.dirname(os.__file__) + '/escaped.py')", "EACCES EROFS"),
    attempt("write into the packages", "attempt(write, sys.prefix + '/escaped.pth')", "EACCES EROFS"),
    attempt("write beside a secret", "attempt(write, os.path.dirname(SECRET) + '/escaped')", "ENOENT", outside=True),
    attempt("climb by dots", "attempt(read, '../' * 30 + SECRET)", "ENOENT", outside=True),
    attempt(
        "read through a link",
        """
os.symlink(SECRET, 'link')
attempt(read, 'link')
""",
        "ENOENT",
        outside=True,
    ),
    attempt("link to a file of the host", "attempt(os.link, SECRET, 'hard')", "ENOENT"),
    attempt("link to a file of the system", "attempt(os.link, '/etc/passwd', 'hard')", "EPERM EXDEV"),
    attempt(
        "have the host follow links",
        """
os.symlink(SECRET, 'kept')
os.symlink(os.path.dirname(SECRET), 'folder')
os.mkfifo('pipe')
say('HELD', 'left')
""",
        "left",
        keep=("*",),
    ),
    attempt("leave the root by /proc", "attempt(read, '/proc/1/root' + SECRET)", "EACCES ENOENT"),
    attempt("look into the parent's folder", "attempt(read, '/proc/1/cwd/' + SECRET)", "EACCES ENOENT"),
    attempt("list /sys", "attempt(os.listdir, '/sys')", "ENOENT", outside=True),
    attempt(
        "leave the control group",
        """
attempt(write, '/sys/fs/cgroup/memory/cgroup.procs')
attempt(write, '/sys/fs/cgroup/cgroup.procs')
""",
        "ENOENT",
    ),
    attempt("rename the host", "attempt(write, '/proc/sys/kernel/hostname')", "EACCES EPERM EROFS"),
    attempt("set the core pattern", "attempt(write, '/proc/sys/kernel/core_pattern')", "EACCES EPERM EROFS"),
    attempt("press SysRq", "attempt(write, '/proc/sysrq-trigger')", "EACCES ENOENT EPERM EROFS"),
    attempt(
        "open devices",
        """
for name in ('mem', 'kmsg', 'kvm', 'fuse', 'ptmx', 'net/tun', 'vda', 'sda', 'nvme0n1', 'loop0', 'tty'):
    attempt(read, '/dev/' + name)
""",
        "ENOENT",
    ),
    attempt(
        "make a block device",
        "attempt(os.mknod, 'disk', stat.S_IFBLK | 0o666, os.makedev(254, 0))",
        "EPERM",
        outside=True,
    ),
    attempt(
        "make a character device",
        "attempt(os.mknod, 'memory', stat.S_IFCHR | 0o666, os.makedev(1, 1))",
        "EPERM",
        outside=True,
    ),
    attempt(
        "use setuid programs",
        """
for command in (['su', 'root', '-c', 'id -u'], ['mount', '-t', 'tmpfs', 'none', '/tmp']):
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    say('HELD' if done.returncode and b'0' != done.stdout.strip() else 'ESCAPED', 'refused')
""",
        "refused",
    ),
    attempt(
        "run a setuid file of its own",
        r"""
open('own', 'w').write('#!/bin/sh\nid -u')
os.chmod('own', 0o6755)
say('ESCAPED' if subprocess.run(['./own'], capture_output=True).stdout.strip() == b'0' else 'HELD', 'own')
""",
        "own",
    ),
    attempt(
        "become root",
        """
attempt(os.setuid, 0)
attempt(os.setgid, 0)
attempt(os.setgroups, [0])
""",
        "EINVAL EPERM",
    ),
    attempt(
        "leave names that hurt",
        r"""
os.makedirs('/'.join(['d' * 250] * 12))
open('n' * 255, 'w').close()
open(b'\xff\xfe', 'w').close()
open('line\nbreak', 'w').close()
open('-rf', 'w').close()
say('HELD', 'left')
""",
        "left",
        keep=("*",),
    ),
]

PRIVACY = [
    attempt(
        "read environments",
        """
def environments():
    found = b''
    for name in filter(str.isdigit, os.listdir('/proc')):
        try:
            found += open(f'/proc/{name}/environ', 'rb').read()
        except OSError:
            continue
    return found
attempt(environments, worth=lambda found: b'escape-secret' in found)
""",
        "worthless",
        outside=True,
    ),
    attempt(
        "read its own environment",
        "attempt(lambda: os.environ, worth=lambda found: 'escape-secret' in str(found))",
        "worthless",
        outside=True,
    ),
    attempt(
        "see processes of the host",
        "attempt(os.listdir, '/proc', worth=lambda names: sum(map(str.isdigit, names)) > 2)",
        "worthless",
        outside=True,
    ),
    attempt(
        "use inherited descriptors",
        "attempt(os.listdir, '/proc/self/fd', worth=lambda names: len(names) > 4)",
        "worthless",
    ),
    attempt("read the memory of the first process", "attempt(read, '/proc/1/mem')", "EACCES EIO EPERM"),
]

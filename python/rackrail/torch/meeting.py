"""Joins the job with the ranks of a process group of torch.distributed: its store says who they are and
where rank 0 listens, so that nothing else has to be configured.

RACKRAIL_RANK and RACKRAIL_COORDINATOR overrule it, and without a process group launchers' variables
say the same (rackrail.init)."""

import json
import os
import secrets
import socket
import sys
import time

import torch

from .. import _job

_OWN_VARIABLES = ("RACKRAIL_RANK", "RACKRAIL_COORDINATOR")
_PATIENCE = 300  # seconds, until all ranks have come
_NOTICE = 10  # seconds, after which who is missing is said
_POLL = 0.02  # seconds between two looks at the store, at first
_LONGEST_POLL = 0.5
_REACH = 5  # seconds for each address of rank 0
_distributed = torch.distributed


def join(group=None, **options):
    """Makes this process a rank, if it is none yet: that of the group where there is one."""
    with _job.joining:
        if not _job.was_joined():
            _join(group, options)


def _join(group, options):
    if (not _distributed.is_available() or not _distributed.is_initialized()
            or any(name in os.environ for name in _OWN_VARIABLES)):
        _job.init(**options)
        return
    if _store() is None:  # PyTorch's MPI backend has none
        _job.init(**options)
        return
    rank, ranks = _distributed.get_rank(group), _distributed.get_world_size(group)
    if rank < 0:
        raise _job.InputError("process_group: found one that this process is not in")
    if ranks == 1:
        _job.init(rank=0, world_size=1, **options)
        return
    _Meeting(_members(group), rank).join(options)


def _store():
    return _distributed.distributed_c10d._get_default_store()


def _members(group):
    """Ranks in the default group, in the group's order."""
    if group is None or group is _distributed.group.WORLD:
        return list(range(_distributed.get_world_size()))
    of_group = getattr(_distributed, "get_process_group_ranks", None)
    if of_group is not None:
        return of_group(group)
    # PyTorch 1.13 has it for one rank at a time.
    return [_distributed.distributed_c10d.get_global_rank(group, rank)
            for rank in range(_distributed.get_world_size(group))]


def _host():
    """The same for processes that can meet at a Unix socket, whatever their machine is called."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        boot = secrets.token_hex(8)  # then each process is on a host of its own
    folder = os.stat("/tmp")
    return f"{boot} {folder.st_dev} {folder.st_ino} {os.geteuid()}"


class _Meeting:
    """By keys in the default group's store, under a name of the members."""

    def __init__(self, members, rank):
        self._rank = rank
        self._members = members
        name = "rackrail/" + ",".join(map(str, members))
        self._store = _distributed.PrefixStore(name, _store())

    def join(self, options):
        timeout = options.get("timeout") or _PATIENCE
        self._deadline = time.monotonic() + timeout
        self._set(f"host {self._rank}", _host())
        given = {"rank": self._rank, "world_size": len(self._members),
                 "is_network_private": True, **options, "timeout": timeout}
        if self._rank == 0:
            self._lead(given)
        else:
            self._follow(given)

    def _lead(self, given):
        hosts = {self._get(f"host {rank}", f"rank {member}")
                 for rank, member in enumerate(self._members)}
        token = secrets.token_hex(32)
        where = f"unix:{secrets.token_hex(8)}" if len(hosts) == 1 else _anywhere()
        told = []

        def tell(addresses):
            try:
                self._set("meeting", json.dumps({"addresses": addresses.split(), "token": token}))
                told.append(addresses)
            except Exception as error:  # of the store: a callback of the library must return
                print(f"rackrail: PyTorch's store cannot be told where rank 0 listens: {_line(error)}",
                      file=sys.stderr)

        try:
            _job.join(**given, coordinator=where, token=token, on_listening=tell)
        except _job.Error as error:
            if not told:  # the others need not wait
                self._set("meeting", json.dumps({"error": str(error)}))
            raise

    def _follow(self, given):
        meeting = json.loads(self._get("meeting", f"rank {self._members[0]}"))
        if "error" in meeting:
            raise _job.Error(f"rank {self._members[0]}: {meeting['error']}")
        _job.join(**given, coordinator=self._reachable(meeting["addresses"]), token=meeting["token"])

    def _set(self, key, value):
        self._store.set(key, value)
        self._store.add(f"{key} is there", 1)

    def _get(self, key, who):
        """Waits for it, and says for whom when that takes long. By a counter: a store whose wait() ended
        at its time limit may answer the next question with what the last one was about."""
        began = time.monotonic()
        notice = began + _NOTICE
        poll = _POLL
        while self._store.add(f"{key} is there", 0) == 0:
            now = time.monotonic()
            if now >= self._deadline:
                raise _job.Error(f"{who} has not called rackrail within {now - began:.0f} s")
            if now >= notice:
                print(f"rackrail: rank {self._members[self._rank]} waits for {who}, which has not called"
                      " rackrail yet", file=sys.stderr)
                notice = now + 60
            time.sleep(poll)
            poll = min(2 * poll, _LONGEST_POLL)
        return self._store.get(key).decode()

    def _reachable(self, addresses):
        """The first of rank 0's addresses that takes a connection from here."""
        if len(addresses) == 1:
            return addresses[0]
        tried = []
        for address in addresses:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH).close()
                return address
            except OSError as error:
                tried.append(f"{address} ({_line(error)})")
        raise _job.Error(f"rank {self._members[self._rank]} reaches rank {self._members[0]} at none of "
                         + ", ".join(tried) + "; RACKRAIL_COORDINATOR=host:port says another address")


def _anywhere():
    """All addresses of this host: those of IPv6, too, where the ranks have met by it."""
    try:
        found = socket.getaddrinfo(os.environ.get("MASTER_ADDR", ""), None)
    except (OSError, UnicodeError):
        found = []
    families = {each[0] for each in found}
    return "[::]:0" if families == {socket.AF_INET6} else "0.0.0.0:0"


def _line(error):
    return (str(error) or type(error).__name__).splitlines()[0]

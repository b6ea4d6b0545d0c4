"""The clock of other processes, a settable time away from the true one: a library that is loaded before all others."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long *shift;
__attribute__((constructor)) static void load(void) {
  int file = open(getenv("CLOCK_SHIFT"), O_RDONLY);
  shift = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
  close(file);
}
int clock_gettime(clockid_t clock, struct timespec *found) {
  int status = syscall(SYS_clock_gettime, clock, found);
  if (!status && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) found->tv_sec += *shift;
  return status;
}
int gettimeofday(struct timeval *found, void *zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  found->tv_sec = now.tv_sec;
  found->tv_usec = now.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *kept) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (kept) *kept = now.tv_sec;
  return now.tv_sec;
}
"""


class ShiftedClock:
    """``environment``: variables of the processes that have this clock."""

    def __init__(self, folder: Path) -> None:
        library, source, shift = folder / "clock.so", folder / "clock.c", folder / "shift"
        source.write_text(SOURCE, encoding="utf-8")
        compiler = shutil.which("cc")
        assert compiler, "a C compiler is needed"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-w", "-o", library, source], check=True)
        shift.write_bytes(bytes(8))
        with open(shift, "r+b") as file:
            self._shift = mmap.mmap(file.fileno(), 8)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(shift)}

    def set(self, seconds: int) -> None:
        self._shift[:] = struct.pack("l", seconds)

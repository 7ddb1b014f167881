/*
 * A wall clock that a test can step, preloaded into redis-server.
 *
 * The functions below stand in front of libc's. Each asks the kernel for the
 * true time and, for the wall clocks only, adds what a file says that is mapped
 * into memory and shared with the test: an offset in nanoseconds. The monotonic
 * clocks stay true, as they do when an operator or NTP steps a host.
 *
 * Nothing here may allocate or call a function that does: jemalloc asks for the
 * time while it initialises itself, and an allocation from inside that call
 * recurses (which is why libfaketime cannot start Debian's redis-server). So
 * the kernel is entered by the raw system call, not through dlsym(RTLD_NEXT).
 *
 * Without CLOCK_OFFSET_FILE, or before the constructor has run, the time is true.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

static const int64_t *offset; /* NULL until mapped */

__attribute__((constructor)) static void map_offset(void) {
	const char *path = getenv("CLOCK_OFFSET_FILE");
	if (path == NULL)
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page != MAP_FAILED)
		offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
	int rc = (int)syscall(SYS_clock_gettime, clock, ts);
	if (rc != 0 || offset == NULL)
		return rc;
	if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
		return rc;
	int64_t by = __atomic_load_n(offset, __ATOMIC_ACQUIRE);
	int64_t ns = ts->tv_nsec + by % NS_PER_S;
	ts->tv_sec += by / NS_PER_S;
	if (ns < 0) {
		ns += NS_PER_S;
		ts->tv_sec--;
	} else if (ns >= NS_PER_S) {
		ns -= NS_PER_S;
		ts->tv_sec++;
	}
	ts->tv_nsec = ns;
	return rc;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	(void)zone; /* obsolete, and NULL in every caller */
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out) {
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return (time_t)-1;
	if (out != NULL)
		*out = ts.tv_sec;
	return ts.tv_sec;
}

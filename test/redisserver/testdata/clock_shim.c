/*
 * A wall clock that a test can step, and can run too fast or too slow, preloaded
 * into redis-server.
 *
 * The functions below stand in front of libc's. Each asks the kernel for the
 * true time and, for the wall clocks only, adds what a file says that is mapped
 * into memory and shared with the test: an offset, and a rate since a true time.
 * The monotonic clocks stay true, as they do when an operator or NTP steps a host.
 *
 * No clock below may allocate or call a function that does: jemalloc asks for the
 * time while it initialises itself, and an allocation from inside that call
 * recurses (which is why libfaketime cannot start Debian's redis-server). So
 * until the constructor has found libc's clock, the kernel is entered by the raw
 * system call. libc's needs none, and each command of a script asks for the time.
 *
 * Without CLOCK_OFFSET_FILE, or before the constructor has run, the time is true.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

struct setting {
	int64_t offset, ppm, since; /* ns, ns in a ms, ns since 1970 */
};

/* The test writes the setting that is not in use, then the index. */
static const struct page {
	int64_t index;
	struct setting settings[2];
} *page; /* NULL until mapped */

static int (*libc_clock)(clockid_t, struct timespec *); /* NULL until found */

/*
 * Set in the thread that runs commands alone. jemalloc's own thread sleeps until a time
 * that it works out from what we say, and the kernel goes by the true clock: with a clock
 * that is behind, it would never sleep. This model of TLS allocates nothing.
 */
static __thread int sees_setting __attribute__((tls_model("initial-exec")));

__attribute__((constructor)) static void find_clock_and_page(void) {
	libc_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	const char *path = getenv("CLOCK_OFFSET_FILE");
	if (path == NULL)
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	void *mapped = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (mapped == MAP_FAILED)
		return;
	page = mapped;
	sees_setting = 1;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
	int rc = libc_clock != NULL ? libc_clock(clock, ts) : (int)syscall(SYS_clock_gettime, clock, ts);
	if (rc != 0 || !sees_setting)
		return rc;
	if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
		return rc;
	const struct setting *s = &page->settings[__atomic_load_n(&page->index, __ATOMIC_ACQUIRE)];
	int64_t by = s->offset + (ts->tv_sec * NS_PER_S + ts->tv_nsec - s->since) / 1000000 * s->ppm;
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

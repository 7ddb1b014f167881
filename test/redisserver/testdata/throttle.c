/*
 * throttle PID RUN_US PERIOD_US lets a process run for RUN_US at the beginning of each
 * period and stops it for the rest, until it has ended or this program is killed.
 *
 * The kernel's own bound, cpu.cfs_quota_us, is not exact: it is checked at scheduler ticks,
 * and with 250 of them a second 1 ms in 10 becomes runs of up to 4 ms and pauses of up to
 * 50 ms. Both processes run in real time, so that other work of the machine takes nothing
 * of RUN_US away; the one that is throttled takes no more than its part.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void until(struct timespec *t, long us)
{
	t->tv_nsec += us * 1000;
	while (t->tv_nsec >= 1000000000) {
		t->tv_nsec -= 1000000000;
		t->tv_sec++;
	}
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, t, NULL);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	pid_t pid = atoi(argv[1]);
	long run = atol(argv[2]), period = atol(argv[3]);
	struct sched_param self = {.sched_priority = 2}, other = {.sched_priority = 1};
	if (sched_setscheduler(0, SCHED_FIFO, &self) || sched_setscheduler(pid, SCHED_FIFO, &other)) {
		perror("run in real time, which needs root");
		return 1;
	}
	puts("throttled");
	fflush(stdout);
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	while (kill(pid, SIGSTOP) == 0) {
		until(&t, period - run);
		kill(pid, SIGCONT);
		until(&t, run);
	}
	return 0;
}

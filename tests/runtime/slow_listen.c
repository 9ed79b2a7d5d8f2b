/* slow_listen.c: a host under load. Preloaded (LD_PRELOAD): each listen() takes 50 ms more. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

int listen(int fd, int backlog)
{
    int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    return real ? real(fd, backlog) : -1;
}

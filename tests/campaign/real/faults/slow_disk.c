/* Lets writes to one disk take as long as on a slow one. See slow_disk.py.

   STORY_DISK is a folder on that disk. The file STORY_DISK_RATE has the bytes that the disk takes in a second; while there is no
   such file, writes are as fast as usual. Each write that waits is a line in STORY_DISK_WAITS: the seconds that it waits. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static dev_t disk;
static const char *rate_path, *waits_path;

__attribute__((constructor)) static void find_disk(void) {
    struct stat found;
    const char *folder = getenv("STORY_DISK");
    if (folder != NULL && stat(folder, &found) == 0) {
        disk = found.st_dev;
        rate_path = getenv("STORY_DISK_RATE");
        waits_path = getenv("STORY_DISK_WAITS");
    }
}

static double bytes_per_s(void) {
    char text[32];
    int file = open(rate_path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0.0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    text[size > 0 ? size : 0] = '\0';
    return atof(text);
}

static void note(double seconds) {
    char line[32];
    int file = open(waits_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0) {
        syscall(SYS_write, file, line, (size_t)snprintf(line, sizeof line, "%.6f\n", seconds));
        close(file);
    }
}

static void wait_for_disk(int descriptor, size_t size) {
    struct stat found;
    int before = errno;
    double rate;
    if (rate_path != NULL && waits_path != NULL && fstat(descriptor, &found) == 0 && found.st_dev == disk &&
        (rate = bytes_per_s()) > 0.0) {
        double seconds = (double)size / rate;
        struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
        note(seconds);
        /* A signal does not end the wait of a process for its disk. */
        while (nanosleep(&left, &left) != 0 && errno == EINTR)
            ;
    }
    errno = before;
}

ssize_t write(int descriptor, const void *bytes, size_t size) {
    wait_for_disk(descriptor, size);
    return syscall(SYS_write, descriptor, bytes, size);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t size, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (real == NULL)
        real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    wait_for_disk(descriptor, size);
    return real(descriptor, bytes, size, at);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t at) {
    return pwrite64(descriptor, bytes, size, at);
}

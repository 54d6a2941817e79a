/* capacity.c - see capacity.h. Control groups: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux. */
#include "capacity.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t capacity_limit_in(const char *path)
{
    char  text[64];
    FILE *f = fopen(path, "r");
    if (!f)
        return SIZE_MAX;
    char *line = fgets(text, sizeof text, f);
    fclose(f);
    if (!line || text[0] < '0' || text[0] > '9')
        return SIZE_MAX;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    return errno || value > SIZE_MAX ? SIZE_MAX : (size_t)value;
}

/* The lowest limit on the way from group `path` up to the root of the hierarchy mounted at `mount`. Inside a container the
 * path of /proc may not exist below the mount: the root's own file then holds the limit. */
static size_t lowest_limit(const char *mount, const char *path, const char *file)
{
    char   group[512], name[1024];
    size_t lowest = SIZE_MAX;
    snprintf(group, sizeof group, "%s", path);
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        snprintf(name, sizeof name, "%s%s/%s", mount, group, file);
        size_t limit = capacity_limit_in(name);
        lowest = limit < lowest ? limit : lowest;
        char *slash = strrchr(group, '/');
        if (!slash)
            return lowest;
        *slash = '\0';
    }
}

static size_t control_group_limit(void)
{
    size_t lowest = SIZE_MAX;
    char   line[640];
    FILE  *f = fopen("/proc/self/cgroup", "r");
    if (!f)
        return SIZE_MAX;
    while (fgets(line, sizeof line, f)) { /* "0::/path" (v2) or "4:memory:/path" (v1) */
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        size_t limit = SIZE_MAX;
        if (controllers[1] == '\0')
            limit = lowest_limit("/sys/fs/cgroup", path, "memory.max");
        else if (!strcmp(controllers + 1, "memory"))
            limit = lowest_limit("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
        lowest = limit < lowest ? limit : lowest;
    }
    fclose(f);
    return lowest;
}

size_t capacity_bytes(void)
{
    long   pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t physical = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX;
    size_t limit = control_group_limit();
    return limit < physical ? limit : physical;
}

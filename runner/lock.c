#include "runner/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "runner/escape.h"

int kg_lock_device(int ordinal, int *fd, struct kg_error *error)
{
    const char *folder = getenv("XDG_RUNTIME_DIR");
    if (folder == NULL || folder[0] != '/' || access(folder, W_OK) != 0)
        folder = "/tmp";
    char *path = kg_format("%s/kgate-gpu-%d.lock", folder, ordinal);
    int rc = 0;
    /* Without O_CREAT first: in a shared /tmp the kernel refuses it for the file of
       another user. A lock needs no right to write. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0 && errno == ENOENT)
        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (*fd < 0) {
        rc = kg_error_at_offset(error, KG_E_IO, path, -1, "cannot open the lock: %s",
                                strerror(errno));
    } else if (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        rc = kg_error_set(error, KG_E_IO,
                          "another run is using GPU %d (it holds %s); wait for it, or "
                          "choose another one with --device cuda:N",
                          ordinal, path);
        close(*fd);
        *fd = -1;
    }
    free(path);
    return rc;
}

/* The ring sizes of NICs that this machine does not have, for programs that preload this: ioctl(2)
 * SIOCETHTOOL with ETHTOOL_GRINGPARAM and ETHTOOL_SRINGPARAM. /run/nodevet-sim/rings has a row
 * "name rx rx-most tx tx-most" for each interface; the kernel answers for all others.
 * ethtool(8) would ask the kernel over generic netlink first: it gets none. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLACE "/run/nodevet-sim/rings"
#define MOST 256

struct row {
    char name[IFNAMSIZ];
    unsigned int rx, rx_most, tx, tx_most;
};

static int read_rows(FILE *file, struct row *rows)
{
    int count = 0;
    struct row *row = rows;
    while (count < MOST && fscanf(file, "%15s %u %u %u %u", row->name, &row->rx, &row->rx_most,
                                  &row->tx, &row->tx_most) == 5)
        row = rows + ++count;
    return count;
}

static int set_rings(FILE *file, struct row *rows, int count, struct row *row,
                     const struct ethtool_ringparam *rings)
{
    if (geteuid() != 0) {
        errno = EPERM;
        return -1;
    }
    if (rings->rx_pending > row->rx_most || rings->tx_pending > row->tx_most) {
        errno = EINVAL;
        return -1;
    }
    row->rx = rings->rx_pending;
    row->tx = rings->tx_pending;
    rewind(file);
    if (ftruncate(fileno(file), 0) != 0)
        return -1;
    for (struct row *each = rows; each < rows + count; each++)
        fprintf(file, "%s %u %u %u %u\n", each->name, each->rx, each->rx_most, each->tx,
                each->tx_most);
    return 0;
}

/* 0, or -1 with errno; 1 if the kernel has to answer. */
static int answer(const char *name, struct ethtool_ringparam *rings)
{
    struct row rows[MOST], *row = rows;
    int sets = rings->cmd == ETHTOOL_SRINGPARAM, result = 1;
    FILE *file = fopen(PLACE, sets ? "r+e" : "re");
    if (!file)
        return 1;
    flock(fileno(file), LOCK_EX);
    int count = read_rows(file, rows);
    while (row < rows + count && strncmp(row->name, name, IFNAMSIZ))
        row++;
    if (row < rows + count && sets) {
        result = set_rings(file, rows, count, row, rings);
    } else if (row < rows + count) {
        memset(rings, 0, sizeof *rings);
        rings->cmd = ETHTOOL_GRINGPARAM;
        rings->rx_max_pending = row->rx_most;
        rings->tx_max_pending = row->tx_most;
        rings->rx_pending = row->rx;
        rings->tx_pending = row->tx;
        result = 0;
    }
    int code = errno;
    fclose(file);
    errno = code;
    return result;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (request == SIOCETHTOOL && argument) {
        struct ifreq *asked = argument;
        struct ethtool_ringparam *rings = (void *)asked->ifr_data;
        if (rings && (rings->cmd == ETHTOOL_GRINGPARAM || rings->cmd == ETHTOOL_SRINGPARAM)) {
            int result = answer(asked->ifr_name, rings);
            if (result <= 0)
                return result;
        }
    }
    return (int)syscall(SYS_ioctl, fd, request, argument);
}

int socket(int domain, int type, int protocol)
{
    if (domain == AF_NETLINK && protocol == NETLINK_GENERIC &&
        strcmp(program_invocation_short_name, "ethtool") == 0) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    return (int)syscall(SYS_socket, domain, type, protocol);
}

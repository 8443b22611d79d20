/* Clocks, by nvmlClockType_t: graphics, SM, memory, video. */
#include "processes.h"
#include "setters.h"

#include <stdio.h>

CHOICE(nvmlDeviceGetMaxClockInfo, "max_clock_graphics_mhz", "max_clock_sm_mhz",
       "max_clock_memory_mhz", "max_clock_video_mhz")
CHOICE(nvmlDeviceGetApplicationsClock, "app_clock_graphics_mhz", "app_clock_sm_mhz",
       "app_clock_memory_mhz")
CHOICE(nvmlDeviceGetDefaultApplicationsClock, "app_clock_graphics_default_mhz",
       "app_clock_sm_default_mhz", "app_clock_memory_default_mhz")

/* Under load a clock is the highest that the locked clocks allow, and application clocks that
 * are below the board's default; a higher default is not a bound, as boards boost beyond it.
 * The SM clock is bound with the graphics clock. A highest clock of 0 is no bound; NVML has
 * no call that reads them. */
enum { GRAPHICS, SM };
static const struct {
    const char *clock, *most, *min, *max, *app, *usual;
} current[] = {
    {"clock_graphics_mhz", "max_clock_graphics_mhz", "locked_clock_graphics_min_mhz",
     "locked_clock_graphics_max_mhz", "app_clock_graphics_mhz", "app_clock_graphics_default_mhz"},
    {"clock_sm_mhz", "max_clock_sm_mhz", "locked_clock_graphics_min_mhz",
     "locked_clock_graphics_max_mhz", "app_clock_graphics_mhz", "app_clock_graphics_default_mhz"},
    {"clock_memory_mhz", "max_clock_memory_mhz", "locked_clock_memory_min_mhz",
     "locked_clock_memory_max_mhz", "app_clock_memory_mhz", "app_clock_memory_default_mhz"},
    {"clock_video_mhz", NULL, NULL, NULL, NULL, NULL},
};

/* An application clock below the board's default; false without one. */
static bool is_lowered(nvmlDevice_t device, unsigned int which, unsigned int *clock)
{
    unsigned int usual;
    return get_uint(device, NULL, current[which].app, clock) == NVML_SUCCESS &&
           get_uint(device, NULL, current[which].usual, &usual) == NVML_SUCCESS && *clock < usual;
}

/* What a description says; of live processes that compute on a GPU described as idle, the highest
 * but for application clocks. Either within the locked clocks. */
static nvmlReturn_t clock_as_set(nvmlDevice_t device, unsigned int which, unsigned int *out)
{
    unsigned int busy, lowered, min, max;
    if (current[which].most && is_computing(device, &busy)) {
        TRY(get_uint(device, NULL, current[which].most, out));
        if (is_lowered(device, which, &lowered) && lowered < *out)
            *out = lowered;
    } else {
        TRY(get_uint(device, NULL, current[which].clock, out));
    }
    if (current[which].min && get_uint(device, NULL, current[which].min, &min) == NVML_SUCCESS &&
        get_uint(device, NULL, current[which].max, &max) == NVML_SUCCESS && max)
        *out = *out < min ? min : *out > max ? max : *out;
    return NVML_SUCCESS;
}

/* What a GPU that computes draws. Under full load at its highest clock that is nine tenths of the
 * board's default limit; beyond what it draws idle it goes with how busy it is, and with the
 * square of its clock. */
static unsigned int drawn_mw(nvmlDevice_t device, unsigned int busy, unsigned long long clock)
{
    unsigned int idle = 0, usual, most;
    get_uint(device, NULL, "power_draw_mw", &idle);
    if (get_uint(device, NULL, "power_limit_default_mw", &usual) != NVML_SUCCESS ||
        get_uint(device, NULL, "max_clock_sm_mhz", &most) != NVML_SUCCESS || !most ||
        usual / 10 * 9 < idle)
        return idle;
    unsigned long long full = (usual / 10 * 9 - idle) / 100 * busy;
    return idle + (unsigned int)(full * clock * clock / most / most);
}

enum { LOWEST_MHZ = 210, STEP_MHZ = 15 };

/* A graphics or SM clock under load, so low that the GPU stays within its power limit. */
static unsigned int within_power(nvmlDevice_t device, unsigned int clock)
{
    unsigned int busy, limit;
    if (is_computing(device, &busy) &&
        get_uint(device, NULL, "power_limit_enforced_mw", &limit) == NVML_SUCCESS)
        while (clock > LOWEST_MHZ && drawn_mw(device, busy, clock) > limit)
            clock -= STEP_MHZ;
    return clock;
}

/* What a description says, and of live processes that compute on a GPU described as idle: not
 * idle; the power limit or the application clocks where they hold it down. */
static nvmlReturn_t event_reasons(nvmlDevice_t device, unsigned long long *out)
{
    unsigned int busy, lowered, clock;
    TRY(get_ulonglong(device, "event_reasons", out));
    if (is_computing(device, &busy)) {
        *out = is_lowered(device, 0, &lowered) ? APPLICATIONS_CLOCKS : 0;
        if (clock_as_set(device, SM, &clock) == NVML_SUCCESS &&
            within_power(device, clock) < clock)
            *out = SW_POWER_CAP;
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
                                                           unsigned long long *out)
{
    CALL(device, out);
    return event_reasons(device, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                              unsigned long long *out)
{
    CALL(device, out);
    return event_reasons(device, out);
}

/* P0 under load. */
static nvmlReturn_t performance_state(nvmlDevice_t device, unsigned int *out)
{
    unsigned int busy;
    TRY(get_uint(device, NULL, "pstate", out));
    *out = is_computing(device, &busy) ? 0 : *out;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned int *out)
{
    CALL(device, out);
    return performance_state(device, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, unsigned int *out)
{
    CALL(device, out);
    return performance_state(device, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *out)
{
    unsigned int busy, clock;
    CALL(device, out);
    TRY(get_uint(device, NULL, "power_draw_mw", out));
    if (is_computing(device, &busy) && clock_as_set(device, SM, &clock) == NVML_SUCCESS)
        *out = drawn_mw(device, busy, within_power(device, clock));
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int which,
                                           unsigned int *out)
{
    CALL(device, out);
    if (which >= sizeof current / sizeof *current)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(clock_as_set(device, which, out));
    if (which == GRAPHICS || which == SM)
        *out = within_power(device, *out);
    return NVML_SUCCESS;
}

/* by nvmlClockId_t: current, application target, application default */
EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned int type, unsigned int id,
                                       unsigned int *out)
{
    CALL(device, out);
    switch (id) {
    case 0:
        return nvmlDeviceGetClockInfo(device, type, out);
    case 1:
        return nvmlDeviceGetApplicationsClock(device, type, out);
    case 2:
        return nvmlDeviceGetDefaultApplicationsClock(device, type, out);
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

/* Supported clocks. They are not described but derived: the highest memory clock and the
 * default one; with both the graphics clocks from the highest down to 210 MHz in steps of
 * 15 MHz, as on A100 and H100, and the default one. */

enum { CLOCKS = 512 };

static unsigned int default_clock(nvmlDevice_t device, const char *key)
{
    unsigned int clock;
    return get_uint(device, NULL, key, &clock) == NVML_SUCCESS ? clock : 0;
}

static nvmlReturn_t memory_clocks(nvmlDevice_t device, unsigned int *clocks, unsigned int *count)
{
    unsigned int usual = default_clock(device, "app_clock_memory_default_mhz");
    TRY(get_uint(device, NULL, "max_clock_memory_mhz", &clocks[0]));
    *count = 1;
    if (usual && usual < clocks[0])
        clocks[(*count)++] = usual;
    return NVML_SUCCESS;
}

static nvmlReturn_t graphics_clocks(nvmlDevice_t device, unsigned int *clocks, unsigned int *count)
{
    unsigned int usual = default_clock(device, "app_clock_graphics_default_mhz"), clock;
    TRY(get_uint(device, NULL, "max_clock_graphics_mhz", &clock));
    *count = 0;
    for (; clock >= LOWEST_MHZ && *count + 2 <= CLOCKS; clock -= STEP_MHZ) {
        clocks[(*count)++] = clock;
        if (usual < clock && usual + STEP_MHZ > clock)
            clocks[(*count)++] = usual;
    }
    return NVML_SUCCESS;
}

static bool is_among(unsigned int clock, const unsigned int *clocks, unsigned int count)
{
    for (unsigned int i = 0; i < count; i++)
        if (clocks[i] == clock)
            return true;
    return false;
}

static nvmlReturn_t answer_clocks(const unsigned int *clocks, unsigned int found,
                                  unsigned int *count, unsigned int *out)
{
    bool fits = found <= *count && (out || !found);
    for (unsigned int i = 0; fits && i < found; i++)
        out[i] = clocks[i];
    *count = found;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count,
                                                       unsigned int *out)
{
    unsigned int clocks[2], found;
    CALL(device, count);
    TRY(memory_clocks(device, clocks, &found));
    return answer_clocks(clocks, found, count, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory,
                                                         unsigned int *count, unsigned int *out)
{
    unsigned int clocks[CLOCKS], found;
    CALL(device, count);
    TRY(memory_clocks(device, clocks, &found));
    if (!is_among(memory, clocks, found))
        return NVML_ERROR_NOT_FOUND;
    TRY(graphics_clocks(device, clocks, &found));
    return answer_clocks(clocks, found, count, out);
}

/* Application clocks */

static nvmlReturn_t write_application_clocks(nvmlDevice_t device, unsigned int memory,
                                             unsigned int graphics)
{
    struct numbers numbers = {.count = 0};
    add_number(&numbers, "app_clock_memory_mhz", memory);
    add_number(&numbers, "app_clock_graphics_mhz", graphics);
    return set_numbers(device, "app_clock_graphics_mhz", &numbers);
}

EXPORT nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned int memory,
                                                    unsigned int graphics)
{
    unsigned int clocks[CLOCKS], count;
    CALL(device, device);
    TRY(may_set(device, "app_clock_memory_mhz"));
    TRY(may_set(device, "app_clock_graphics_mhz"));
    TRY(memory_clocks(device, clocks, &count));
    if (!is_among(memory, clocks, count))
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(graphics_clocks(device, clocks, &count));
    if (!is_among(graphics, clocks, count))
        return NVML_ERROR_INVALID_ARGUMENT;
    return write_application_clocks(device, memory, graphics);
}

EXPORT nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device)
{
    unsigned int memory, graphics;
    CALL(device, device);
    TRY(may_set(device, "app_clock_graphics_mhz"));
    TRY(get_uint(device, NULL, "app_clock_memory_default_mhz", &memory));
    TRY(get_uint(device, NULL, "app_clock_graphics_default_mhz", &graphics));
    return write_application_clocks(device, memory, graphics);
}

/* Locked clocks; a highest clock of 0 is the reset. The setting's name is
 * locked_clock_graphics_mhz or locked_clock_memory_mhz. */

static nvmlReturn_t lock_clocks(nvmlDevice_t device, const char *kind, unsigned int min,
                                unsigned int max)
{
    char limit[64], setting[64], lowest[64], highest[64];
    unsigned int most;
    struct numbers numbers = {.count = 0};
    snprintf(limit, sizeof limit, "max_clock_%s_mhz", kind);
    snprintf(setting, sizeof setting, "locked_clock_%s_mhz", kind);
    snprintf(lowest, sizeof lowest, "locked_clock_%s_min_mhz", kind);
    snprintf(highest, sizeof highest, "locked_clock_%s_max_mhz", kind);
    TRY(may_set(device, limit));
    TRY(get_uint(device, NULL, limit, &most));
    if (min > max || max > most)
        return NVML_ERROR_INVALID_ARGUMENT;
    add_number(&numbers, lowest, min);
    add_number(&numbers, highest, max);
    return set_numbers(device, setting, &numbers);
}

/* A pair of nvmlClockLimitId_t, where both are UNLIMITED, is the reset; TDP is not simulated. */
EXPORT nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int min,
                                                 unsigned int max)
{
    CALL(device, device);
    TRY(is_since(device, "VOLTA"));
    if (min == NVML_CLOCK_LIMIT_ID_UNLIMITED && max == NVML_CLOCK_LIMIT_ID_UNLIMITED)
        return lock_clocks(device, "graphics", 0, 0);
    if (min >= NVML_CLOCK_LIMIT_ID_TDP && max >= NVML_CLOCK_LIMIT_ID_TDP)
        return NVML_ERROR_NOT_SUPPORTED;
    return max ? lock_clocks(device, "graphics", min, max) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device)
{
    CALL(device, device);
    TRY(is_since(device, "VOLTA"));
    return lock_clocks(device, "graphics", 0, 0);
}

EXPORT nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned int min,
                                                    unsigned int max)
{
    CALL(device, device);
    TRY(is_since(device, "AMPERE"));
    return max ? lock_clocks(device, "memory", min, max) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device)
{
    CALL(device, device);
    TRY(is_since(device, "AMPERE"));
    return lock_clocks(device, "memory", 0, 0);
}

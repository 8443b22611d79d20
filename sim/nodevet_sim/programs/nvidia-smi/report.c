/* See report.h. */
#include "report.h"

#include "fields.h"
#include "markup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static unsigned int driver_branch(void)
{
    char version[VALUE_SIZE];
    if (CALL(nvmlSystemGetDriverVersion, version, sizeof version))
        return 999;
    return (unsigned int)strtoul(version, NULL, 10);
}

/* Before 530 the reasons were called throttle reasons. */
static const char *tag_of(const struct row *row, unsigned int branch, char *room, size_t size)
{
    static const char now[] = "clocks_event_reason";
    if (branch >= 530 || strncmp(row->tag, now, strlen(now)) != 0)
        return row->tag;
    snprintf(room, size, "clocks_throttle_reason%s", row->tag + strlen(now));
    return room;
}

static void read_row(const struct gpu *gpu, const struct row *row, bool xml, char *out,
                     size_t size)
{
    char value[VALUE_SIZE];
    const struct field *field = field_named(row->value);
    int error = field ? field_read(gpu, field, value) : ERROR_NOT_SUPPORTED;
    if (!field) /* a slip in the layout, which a test looks for */
        snprintf(value, sizeof value, "no field %s", row->value);
    const char *text = value;
    if (xml && strncmp(row->tag, "pci_", 4) == 0 && strncmp(text, "0x", 2) == 0)
        text += 2;
    if (error)
        snprintf(out, size, "%s", text);
    else if (row->suffix)
        snprintf(out, size, "%s%s", text, row->suffix);
    else
        snprintf(out, size, "%s%s%s", text, field->unit ? " " : "", field->unit ? field->unit : "");
}

/* The sections of `-d`, by the elements that are in them. Text has the supported clocks only
 * when asked for. */
static bool is_displayed(const char *tag, const char *display, bool xml)
{
    static const char *const sections[][2] = {
        {"MEMORY", " fb_memory_usage bar1_memory_usage "},
        {"UTILIZATION", " utilization "},
        {"ECC", " ecc_mode ecc_errors "},
        {"TEMPERATURE", " temperature "},
        {"POWER", " power_readings gpu_power_readings "},
        {"CLOCK", " clocks applications_clocks default_applications_clocks deferred_clocks "
                  "max_clocks max_customer_boost_clocks clock_policy "},
        {"COMPUTE", " compute_mode "},
        {"SUPPORTED_CLOCKS", " supported_clocks "},
        {"PIDS", " processes "},
        {"PERFORMANCE", " performance_state clocks_event_reasons clocks_event_reasons_counters "
                        "sparse_operation_mode "},
        {"PAGE_RETIREMENT", " retired_pages "},
        {"ROW_REMAPPER", " remapped_rows "},
        {"GSP_FIRMWARE_VERSION", " gsp_firmware_version "},
    };
    char word[64];
    snprintf(word, sizeof word, " %s ", tag);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        for (const char *at = display; at && *at; at += strcspn(at, ","), at += *at == ',')
            if (strcspn(at, ",") == strlen(sections[i][0]) &&
                strncasecmp(at, sections[i][0], strlen(sections[i][0])) == 0 &&
                strstr(sections[i][1], word))
                return true;
    return !display && (xml || strcmp(tag, "supported_clocks") != 0);
}

static void print_value(const struct gpu *gpu, const struct row *row, const char *tag, bool xml,
                        unsigned int indent)
{
    char value[VALUE_SIZE + 32] = "N/A"; /* of a group that does not exist, too */
    if (row->value && *row->value == '=')
        snprintf(value, sizeof value, "%s", row->value + 1);
    else if (row->value && *row->value != '?')
        read_row(gpu, row, xml, value, sizeof value);
    if (xml)
        element(row->depth + 2, tag, value);
    else if (row->label)
        line(indent, row->label, value);
}

/* Print the row and all that are deeper; where `hidden`, only pass over them. The next row.
 * `indent` is of the text, which leaves out some groups. */
static const struct row *print_row(const struct gpu *gpu, const struct row *row,
                                   unsigned int branch, bool xml, bool hidden,
                                   unsigned int indent)
{
    char room[64], unused[VALUE_SIZE];
    const struct row *next = row + 1;
    const char *tag = tag_of(row, branch, room, sizeof room);
    bool group = !row->value || *row->value == '?';
    hidden = hidden || branch < row->since || (row->before && branch >= row->before);
    if (!hidden && row->value && *row->value == '?')
        group = field_read(gpu, field_named(row->value + 1), unused) != ERROR_NOT_SUPPORTED;
    if (!hidden && row->value && *row->value == '@')
        print_list(gpu, row->value + 1, xml);
    else if (!hidden && !group)
        print_value(gpu, row, tag, xml, indent);
    else if (!hidden && xml)
        element_open(row->depth + 2, tag);
    else if (!hidden && row->label)
        line_head(indent, row->label);
    while (next->tag && next->depth > row->depth)
        next = print_row(gpu, next, branch, xml, hidden || !group, indent + (row->label != NULL));
    if (!hidden && group && xml)
        element_close(row->depth + 2, tag);
    return next;
}

static void print_head(unsigned int branch, unsigned int attached, bool xml)
{
    char driver[VALUE_SIZE] = "N/A", cuda[32] = "N/A", now[64], count[16];
    int number;
    time_t seconds = time(NULL);
    struct tm local;
    strftime(now, sizeof now, "%a %b %e %H:%M:%S %Y", localtime_r(&seconds, &local));
    CALL(nvmlSystemGetDriverVersion, driver, sizeof driver);
    if (CALL(nvmlSystemGetCudaDriverVersion_v2, &number) == 0)
        snprintf(cuda, sizeof cuda, "%d.%d", number / 1000, number % 1000 / 10);
    snprintf(count, sizeof count, "%u", attached);
    if (!xml) {
        puts("\n==============NVSMI LOG==============\n");
        line(0, "Timestamp", now);
        line(0, "Driver Version", driver);
        line(0, "CUDA Version", cuda);
        puts("");
        line(0, "Attached GPUs", count);
        return;
    }
    printf("<?xml version=\"1.0\" ?>\n"
           "<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v%d.dtd\">\n<nvidia_smi_log>\n",
           branch >= 580 ? 13 : branch >= 525 ? 12 : 11);
    element(1, "timestamp", now);
    element(1, "driver_version", driver);
    element(1, "cuda_version", cuda);
    element(1, "attached_gpus", count);
}

int report_print(const struct options *options, const struct gpus *gpus)
{
    unsigned int branch = driver_branch();
    int code = 0;
    print_head(branch, gpus->attached, options->xml);
    for (unsigned int i = 0; i < gpus->count; i++) {
        const struct gpu *gpu = &gpus->list[i];
        if (gpu->status) {
            code = gpu_unreachable(gpu);
            continue;
        }
        printf(options->xml ? "\t<gpu id=\"%s\">\n" : "GPU %s\n", gpu->pci.busId);
        for (const struct row *row = report_rows; row->tag;)
            row = print_row(gpu, row, branch, options->xml,
                            !is_displayed(row->tag, options->display, options->xml), 1);
        puts(options->xml ? "\t</gpu>\n" : "");
    }
    if (options->xml)
        puts("</nvidia_smi_log>");
    return code;
}

/* How a value is read of NVML and spelled; see struct field for what a reader is told. */
#ifndef NODEVET_SIM_READERS_H
#define NODEVET_SIM_READERS_H

#include "fields.h"

reader read_text, read_buffer, read_number, read_pair, read_choice, read_hex,
    read_watts, read_watts_pair, read_version, read_index, read_count, read_timestamp, read_pci,
    read_memory, read_bar1, read_utilization, read_ecc, read_sram, read_sram_secded,
    read_remapping, read_histogram, read_retired, read_reason, read_field, read_margin,
    read_pstate, read_fabric, read_fabric_health;

#endif

/*
 * runner/bench/nvml.h: the state of the GPU around a measurement, through NVML.
 *
 * libnvidia-ml.so.1 is loaded at run time and is optional: without it `available` is false and
 * nothing is known. Only reads: no clock, limit or mode is ever changed.
 */
#ifndef KG_RUNNER_BENCH_NVML_H
#define KG_RUNNER_BENCH_NVML_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct kg_gpu_state {
    bool available;
    uint32_t sm_mhz, mem_mhz;
    uint32_t temperature_c;
    uint32_t power_mw;
    uint64_t throttle_reasons;               /* NVML's bits, kept raw */
    uint64_t ecc_corrected, ecc_uncorrected; /* since boot; 0 if ECC is off */
    uint32_t other_processes; /* compute processes on this GPU beside the calling one */
};

/* Connects to the GPU with this PCI bus id. False (and everything later says "not available")
   if there is no NVML or no such GPU. */
bool kg_nvml_open(const char *pci_bus_id);
void kg_nvml_close(void);
struct kg_gpu_state kg_nvml_state(void);

/* Only the throttle reasons: cheap enough to ask after every sample. 0 if not available. */
uint64_t kg_nvml_throttle(void);

/* True if the reasons mean that clocks were held down by power, heat or a brake. Idle and an
   application clock setting are no throttling. */
bool kg_is_throttled(uint64_t reasons);

/* "sw-power-cap,hw-thermal" or "none"; buffer of at least 128 bytes. */
const char *kg_throttle_text(uint64_t reasons, char *buffer, unsigned size);

/* As it stands in a result; JSON null if not available. */
json_t *kg_gpu_state_json(const struct kg_gpu_state *state);

#endif

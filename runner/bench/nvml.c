#include "runner/bench/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The few declarations of NVML that are needed, so that building needs no CUDA toolkit. */
typedef int nvml_return;
typedef struct nvml_device *nvml_device;
enum { clock_sm = 1, clock_mem = 2 };
enum { ecc_corrected = 0, ecc_uncorrected = 1, ecc_volatile = 0 };
struct nvml_process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

enum reason {
    reason_sw_power_cap = 0x4,
    reason_hw_slowdown = 0x8,
    reason_sw_thermal = 0x20,
    reason_hw_thermal = 0x40,
    reason_hw_power_brake = 0x80,
};

static const struct {
    uint64_t bit;
    const char *name;
} reasons[] = {
    {reason_sw_power_cap,   "sw-power-cap"},
    {reason_hw_slowdown,    "hw-slowdown" },
    {reason_sw_thermal,     "sw-thermal"  },
    {reason_hw_thermal,     "hw-thermal"  },
    {reason_hw_power_brake, "power-brake" },
};

static struct {
    void *library;
    nvml_device device;
    nvml_return (*init)(void);
    nvml_return (*shutdown)(void);
    nvml_return (*by_bus)(const char *, nvml_device *);
    nvml_return (*clock)(nvml_device, int, unsigned *);
    nvml_return (*temperature)(nvml_device, int, unsigned *);
    nvml_return (*power)(nvml_device, unsigned *);
    nvml_return (*throttle)(nvml_device, unsigned long long *);
    nvml_return (*ecc)(nvml_device, int, int, unsigned long long *);
    nvml_return (*processes)(nvml_device, unsigned *, struct nvml_process *);
} nvml;

static bool load_symbols(void)
{
    const struct {
        void *slot;
        const char *name;
    } symbols[] = {
        {&nvml.init,        "nvmlInit_v2"                              },
        {&nvml.shutdown,    "nvmlShutdown"                             },
        {&nvml.by_bus,      "nvmlDeviceGetHandleByPciBusId_v2"         },
        {&nvml.clock,       "nvmlDeviceGetClockInfo"                   },
        {&nvml.temperature, "nvmlDeviceGetTemperature"                 },
        {&nvml.power,       "nvmlDeviceGetPowerUsage"                  },
        {&nvml.throttle,    "nvmlDeviceGetCurrentClocksThrottleReasons"},
        {&nvml.ecc,         "nvmlDeviceGetTotalEccErrors"              },
        {&nvml.processes,   "nvmlDeviceGetComputeRunningProcesses_v3"  },
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(nvml.library, symbols[i].name);
        if (!symbol)
            return false;
        memcpy(symbols[i].slot, &symbol, sizeof symbol);
    }
    return true;
}

bool kg_nvml_open(const char *pci_bus_id)
{
    if (nvml.device || pci_bus_id[0] == '\0')
        return nvml.device != NULL;
    nvml.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml.library)
        return false;
    if (!load_symbols() || nvml.init() != 0) {
        dlclose(nvml.library);
        memset(&nvml, 0, sizeof nvml);
        return false;
    }
    if (nvml.by_bus(pci_bus_id, &nvml.device) != 0) {
        kg_nvml_close();
        return false;
    }
    return true;
}

void kg_nvml_close(void)
{
    if (!nvml.library)
        return;
    nvml.shutdown();
    dlclose(nvml.library);
    memset(&nvml, 0, sizeof nvml);
}

static uint32_t other_processes(void)
{
    struct nvml_process list[64];
    unsigned count = sizeof list / sizeof *list, others = 0;
    if (nvml.processes(nvml.device, &count, list) != 0)
        return 0;
    for (unsigned i = 0; i < count; i++)
        others += list[i].pid != (unsigned)getpid();
    return others;
}

struct kg_gpu_state kg_nvml_state(void)
{
    struct kg_gpu_state s = {0};
    if (!nvml.device)
        return s;
    s.available = true;
    nvml.clock(nvml.device, clock_sm, &s.sm_mhz);
    nvml.clock(nvml.device, clock_mem, &s.mem_mhz);
    nvml.temperature(nvml.device, 0, &s.temperature_c);
    nvml.power(nvml.device, &s.power_mw);
    s.throttle_reasons = kg_nvml_throttle();
    unsigned long long errors = 0;
    if (nvml.ecc(nvml.device, ecc_corrected, ecc_volatile, &errors) == 0)
        s.ecc_corrected = errors;
    if (nvml.ecc(nvml.device, ecc_uncorrected, ecc_volatile, &errors) == 0)
        s.ecc_uncorrected = errors;
    s.other_processes = other_processes();
    return s;
}

uint64_t kg_nvml_throttle(void)
{
    unsigned long long bits = 0;
    if (!nvml.device || nvml.throttle(nvml.device, &bits) != 0)
        return 0;
    return bits;
}

bool kg_is_throttled(uint64_t bits)
{
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (bits & reasons[i].bit)
            return true;
    return false;
}

const char *kg_throttle_text(uint64_t bits, char *buffer, unsigned size)
{
    size_t at = 0;
    buffer[0] = '\0';
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if ((bits & reasons[i].bit) && at < size)
            at += (size_t)snprintf(buffer + at, size - at, "%s%s", at ? "," : "",
                                   reasons[i].name);
    return at ? buffer : "none";
}

json_t *kg_gpu_state_json(const struct kg_gpu_state *s)
{
    if (!s->available)
        return json_null();
    char throttle[128];
    return json_pack("{s:i, s:i, s:i, s:f, s:s, s:I, s:I, s:i}", "sm_mhz", (int)s->sm_mhz,
                     "mem_mhz", (int)s->mem_mhz, "temperature_c", (int)s->temperature_c,
                     "power_w", s->power_mw * 1e-3, "throttle",
                     kg_throttle_text(s->throttle_reasons, throttle, sizeof throttle),
                     "ecc_corrected", (json_int_t)s->ecc_corrected, "ecc_uncorrected",
                     (json_int_t)s->ecc_uncorrected, "other_processes",
                     (int)s->other_processes);
}

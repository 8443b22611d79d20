/* The MIG devices of a GPU, as described. There are none while its MIG mode is off.
 *
 *   gpu.3.mig.0.gpu_instance = 9   the GPU instance of the MIG device with index 0; without this
 *                                  line, no MIG device has the index
 *   gpu.3.mig.0.uuid = MIG-...     what its handle answers, by the keys of a GPU
 */
#include "getters.h"

nvmlReturn_t is_in_mig_mode(nvmlDevice_t device, bool *on)
{
    unsigned int mode = 0;
    nvmlReturn_t result = get_uint(device, NULL, "mig_current", &mode);
    *on = mode == 1;
    return result == NVML_ERROR_NOT_SUPPORTED ? NVML_SUCCESS : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *out)
{
    bool on;
    CALL(device, out);
    TRY(is_in_mig_mode(device, &on));
    *out = on ? NVML_SIM_PARTS : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                        nvmlDevice_t *out)
{
    bool on;
    unsigned int instance;
    CALL(device, out);
    TRY(is_in_mig_mode(device, &on));
    if (!on)
        return NVML_ERROR_NOT_SUPPORTED;
    if (index >= NVML_SIM_PARTS)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = state_part(device, index);
    nvmlReturn_t result = get_uint(*out, NULL, "gpu_instance", &instance);
    return result == NVML_ERROR_NOT_SUPPORTED ? NVML_ERROR_NOT_FOUND : result;
}

UINT(nvmlDeviceGetGpuInstanceId, "gpu_instance")

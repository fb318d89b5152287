// What llama.cpp's Vulkan backend uses and Vulkan headers before 1.3.272 lack, in front of the system's header.
// llama.cpp gives these settings to a validation layer, and only where GGML_VULKAN_VALIDATE switched it on.
// Layout and numbers: the Vulkan specification, extension VK_EXT_layer_settings.
#pragma once

#include_next <vulkan/vulkan.hpp>

#include <vector>

#if VK_HEADER_VERSION < 272
namespace vk {

enum class LayerSettingTypeEXT { eBool32 = 0 };

struct LayerSettingEXT {
    const char * pLayerName;
    const char * pSettingName;
    LayerSettingTypeEXT type;
    uint32_t valueCount;
    const void * pValues;
};

struct LayerSettingsCreateInfoEXT {
    explicit LayerSettingsCreateInfoEXT(const std::vector<LayerSettingEXT> & settings)
        : settingCount(static_cast<uint32_t>(settings.size())), pSettings(settings.data()) {}

    StructureType sType = static_cast<StructureType>(1000496000);
    const void * pNext = nullptr;
    uint32_t settingCount;
    const LayerSettingEXT * pSettings;
};

}  // namespace vk
#endif

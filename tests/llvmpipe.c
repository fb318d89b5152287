// Mesa's Vulkan driver without a GPU, as Chromium's own: it has 16-bit numbers in shaders, which SwiftShader lacks.
//
// Chromium gives pages no driver of the CPU but the one with SwiftShader's two numbers, so those are told for it.
// Chromium also asks for two abilities with images that older versions of Mesa lack, and no shader of llama.cpp uses.
// Of all else Mesa's answers stay. MESA is the path of its library.
#include <dlfcn.h>
#include <string.h>
#include <vulkan/vulkan.h>

static PFN_vkGetPhysicalDeviceProperties2 properties;
static PFN_vkGetPhysicalDeviceFeatures2 features;
static PFN_vkCreateDevice create;

static PFN_vkVoidFunction mesa(VkInstance instance, const char *name) {
  static PFN_vkGetInstanceProcAddr get;
  if (!get) get = (PFN_vkGetInstanceProcAddr)dlsym(dlopen(MESA, RTLD_NOW), "vk_icdGetInstanceProcAddr");
  return get(instance, name);
}

static void set_images(VkPhysicalDeviceFeatures *of, VkBool32 there) {
  of->shaderSampledImageArrayDynamicIndexing = of->shaderStorageImageArrayDynamicIndexing = there;
}

static void get_properties2(VkPhysicalDevice device, VkPhysicalDeviceProperties2 *told) {
  properties(device, told);
  told->properties.vendorID = 0x1AE0, told->properties.deviceID = 0xC0DE;
}

static void get_properties(VkPhysicalDevice device, VkPhysicalDeviceProperties *told) {
  VkPhysicalDeviceProperties2 all = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  get_properties2(device, &all), *told = all.properties;
}

static void get_features2(VkPhysicalDevice device, VkPhysicalDeviceFeatures2 *told) {
  features(device, told), set_images(&told->features, VK_TRUE);
}

static void get_features(VkPhysicalDevice device, VkPhysicalDeviceFeatures *told) {
  VkPhysicalDeviceFeatures2 all = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  get_features2(device, &all), *told = all.features;
}

static VkResult create_device(VkPhysicalDevice at, const VkDeviceCreateInfo *asked, const VkAllocationCallbacks *by,
                              VkDevice *made) {
  if (asked->pEnabledFeatures) set_images((VkPhysicalDeviceFeatures *)asked->pEnabledFeatures, VK_FALSE);
  for (VkBaseOutStructure *one = (VkBaseOutStructure *)asked->pNext; one; one = one->pNext)
    if (one->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2)
      set_images(&((VkPhysicalDeviceFeatures2 *)one)->features, VK_FALSE);
  return create(at, asked, by, made);
}

static VkResult create_instance(const VkInstanceCreateInfo *asked, const VkAllocationCallbacks *by, VkInstance *made) {
  VkResult result = ((PFN_vkCreateInstance)mesa(NULL, "vkCreateInstance"))(asked, by, made);
  if (result) return result;
  properties = (PFN_vkGetPhysicalDeviceProperties2)mesa(*made, "vkGetPhysicalDeviceProperties2");
  features = (PFN_vkGetPhysicalDeviceFeatures2)mesa(*made, "vkGetPhysicalDeviceFeatures2");
  create = (PFN_vkCreateDevice)mesa(*made, "vkCreateDevice");
  return result;
}

#define OWN(name, function) \
  if (!strcmp(asked, "vk" name) || !strcmp(asked, "vk" name "KHR")) return (PFN_vkVoidFunction)function;

PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *asked) {
  OWN("GetInstanceProcAddr", vkGetInstanceProcAddr)
  OWN("CreateInstance", create_instance)
  OWN("CreateDevice", create_device)
  OWN("GetPhysicalDeviceProperties", get_properties)
  OWN("GetPhysicalDeviceProperties2", get_properties2)
  OWN("GetPhysicalDeviceFeatures", get_features)
  OWN("GetPhysicalDeviceFeatures2", get_features2)
  return mesa(instance, asked);
}

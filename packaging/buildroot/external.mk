include $(sort $(wildcard $(BR2_EXTERNAL_COWFS_PATH)/package/*/*.mk))

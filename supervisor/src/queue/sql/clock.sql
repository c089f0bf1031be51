UPDATE share SET clock = :clock WHERE clock < :clock

"""What an app can say of itself: why something has or has not run, how schedules fare, what people did."""

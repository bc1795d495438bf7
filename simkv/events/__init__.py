"""The event model: the columnar log, the typed edge events, the folds and the exports."""

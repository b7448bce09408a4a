"""Programs that run inside the sandbox. They import nothing of ours and reach it as text; never import them."""

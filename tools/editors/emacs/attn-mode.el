;;; attn-mode.el --- Editing .attn files -*- lexical-binding: t; -*-

;; Package-Requires: ((emacs "27.1"))
;; Keywords: languages

;;; Commentary:
;; A major mode for the language of attnc.  With eglot it talks to attn-ls:
;;   (require 'attn-mode)
;;   (add-hook 'attn-mode-hook #'eglot-ensure)

;;; Code:

(defgroup attn nil "The language of attnc." :group 'languages)

(defcustom attn-server "attn-ls"
  "The language server."
  :type 'string)

(defconst attn-declarations
  '("attention" "recurrent" "fn" "row" "mask" "mod" "let" "import" "check"
    "schedule"))

(defconst attn-words
  '("index" "state" "step" "repeat" "return" "assume" "where" "in" "as" "for"
    "layout" "ragged" "paged" "const" "dyn" "nograd" "inout" "reverse" "dtype"
    "dims" "input" "expect" "tol" "if" "then" "else"))

(defconst attn-types
  '("f64" "f32" "tf32" "bf16" "f16" "f8e4m3" "f8e5m2" "i64" "i32" "i16" "i8"
    "u32" "u16" "u8" "bool" "int"))

(defconst attn-builtins
  '("exp" "exp2" "log" "log2" "sqrt" "rsqrt" "tanh" "sigmoid" "softplus"
    "relu" "silu" "erf" "sin" "cos" "cosh" "sinh" "atan" "log1p" "expm1" "gelu"
    "floor" "abs" "clamp" "select" "stop_grad" "random"
    "dot" "outer" "vec" "concat" "sum" "prod" "max" "min" "mean" "any" "all"
    "count" "cumsum" "suffix_sum" "topk" "from_bits"))

(defvar attn-font-lock-keywords
  `((,(concat (regexp-opt attn-declarations 'symbols)
              "[ \t]+\\([A-Za-z_][A-Za-z0-9_]*\\)")
     (1 font-lock-keyword-face) (2 font-lock-function-name-face))
    (,(regexp-opt (append attn-declarations attn-words) 'symbols)
     . font-lock-keyword-face)
    (,(regexp-opt attn-types 'symbols) . font-lock-type-face)
    (,(regexp-opt attn-builtins 'symbols) . font-lock-builtin-face)
    (,(regexp-opt '("true" "false" "inf") 'symbols)
     . font-lock-constant-face)
    ("@[A-Za-z_]+" . font-lock-preprocessor-face)))

(defvar attn-mode-syntax-table
  (let ((table (make-syntax-table)))
    (modify-syntax-entry ?# "<" table)
    (modify-syntax-entry ?\n ">" table)
    (modify-syntax-entry ?\" "\"" table)
    (modify-syntax-entry ?_ "_" table)
    (dolist (c '(?+ ?- ?* ?/ ?% ?= ?< ?> ?| ?& ?~ ?@ ?!))
      (modify-syntax-entry c "." table))
    table))

(defun attn-indent-line ()
  "Indent by the depth of braces; `attnc fmt' knows the rest."
  (interactive)
  (let* ((depth (save-excursion
                  (beginning-of-line)
                  (let ((n (car (syntax-ppss))))
                    (if (looking-at "[ \t]*[]})]") (1- n) n))))
         (column (* 2 (max 0 depth))))
    (if (<= (current-column) (current-indentation))
        (indent-line-to column)
      (save-excursion (indent-line-to column)))))

;;;###autoload
(define-derived-mode attn-mode prog-mode "Attn"
  "Major mode for .attn files."
  (setq-local comment-start "# ")
  (setq-local comment-start-skip "#+[ \t]*")
  (setq-local indent-tabs-mode nil)
  (setq-local indent-line-function #'attn-indent-line)
  (setq-local font-lock-defaults '(attn-font-lock-keywords))
  (setq-local imenu-generic-expression
              `((nil ,(concat "^" (regexp-opt attn-declarations 'symbols)
                              "[ \t]+\\([A-Za-z_][A-Za-z0-9_]*\\)")
                     2))))

;;;###autoload
(add-to-list 'auto-mode-alist '("\\.attn\\'" . attn-mode))

(with-eval-after-load 'eglot
  (add-to-list 'eglot-server-programs
               (cons 'attn-mode (lambda (&rest _) (list attn-server)))))

(provide 'attn-mode)
;;; attn-mode.el ends here
